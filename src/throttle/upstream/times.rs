//! Numbers of seconds and dates in fields, as waits.

use std::{
    str,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{
    HeaderMap,
    header::{AGE, DATE},
};

/// The smallest number that is read as a time since the Unix epoch instead of a wait.
const EPOCH_SECONDS: u64 = 1_000_000_001;
/// The smallest number that is read as milliseconds since the Unix epoch, because as seconds it is the year 33 658.
const EPOCH_MILLIS: u64 = 1_000_000_000_000;

/// The times of a response, with which its fields are compared.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// Time since the Unix epoch when the upstream wrote the response, by its own clock if the response says so. The
    /// clocks of client and upstream need not agree then.
    written: Duration,
    /// The time since then, if a cache has stored the response; zero otherwise.
    pub(super) age: Duration,
}

impl Times {
    pub(super) fn of(headers: &HeaderMap, now: SystemTime) -> Self {
        let date = headers.get(DATE).and_then(|date| date_in(date.as_bytes()));
        let written = date.unwrap_or_else(|| now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let age = headers.get(AGE).and_then(|age| seconds(age.as_bytes())).unwrap_or_default();
        Self { written, age }
    }

    /// The wait until an HTTP-date; `None` if the text is not a date, or the date has passed.
    pub(super) fn until_date(self, text: &[u8]) -> Option<Duration> {
        date_in(text)?.checked_sub(self.written)
    }

    /// The wait until a reset, which is a number of seconds or a time since the Unix epoch; `None` if the text is no
    /// number, or the time has passed.
    pub(super) fn until_reset(self, text: &[u8]) -> Option<Duration> {
        let reset = seconds(text)?;
        match reset.as_secs() {
            ..EPOCH_SECONDS => Some(reset),
            EPOCH_SECONDS..EPOCH_MILLIS => reset.checked_sub(self.written),
            millis => Duration::from_millis(millis).checked_sub(self.written),
        }
    }
}

/// Reads a number of seconds without a sign. It may have a fraction, which some upstreams send. A number that is too
/// large becomes the largest one.
pub(super) fn seconds(text: &[u8]) -> Option<Duration> {
    let text = text.trim_ascii();
    let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    let (whole, fraction) = (number(&text[..point])?, text.get(point + 1..).unwrap_or(b"0"));
    number(fraction)?;
    let digits = fraction.iter().chain(std::iter::repeat(&b'0')).take(9);
    let nanos = digits.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    Some(Duration::new(whole, nanos))
}

/// Reads a number without a sign, or the largest one if it is too large.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(str::from_utf8(digits).ok()?.parse().unwrap_or(u64::MAX))
}

/// Reads an HTTP-date as time since the Unix epoch.
fn date_in(text: &[u8]) -> Option<Duration> {
    let date = httpdate::parse_http_date(str::from_utf8(text).ok()?.trim()).ok()?;
    date.duration_since(UNIX_EPOCH).ok()
}
