//! RateLimit fields: how long a limit with nothing left lasts; numbers of seconds and dates in fields, as waits.

use std::str;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AGE, DATE};
use http::{HeaderMap, HeaderName};

use crate::headers::{RATELIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET, X_AFTER, X_REMAINING, X_RESET, X_RESET_AFTER};

/// The longest time until a limit with nothing left is reset; `None` if each limit has something left or states no
/// reset. All lines of a field count.
///
/// In a response to a denied request, a limit that does not state what is left has nothing left.
pub(super) fn wait(headers: &HeaderMap, times: Times, is_denial: bool) -> Option<Duration> {
    let lists = headers.get_all(RATELIMIT).iter().filter_map(|line| in_list(line.as_bytes(), times)).max();
    let drafts = in_fields(headers, times, &RATELIMIT_REMAINING, &[RATELIMIT_RESET], is_denial);
    let customs = in_fields(headers, times, &X_REMAINING, &[X_RESET, X_RESET_AFTER, X_AFTER], is_denial);
    let wait = lists.max(drafts).max(customs)?;
    // A cache repeats the fields of an earlier response.
    Some(wait.saturating_sub(times.age))
}

/// Reads limits that have a field each for what is left and for the reset: revisions 03 and 06 of the draft, and
/// X-RateLimit.
fn in_fields(
    headers: &HeaderMap,
    times: Times,
    remaining: &HeaderName,
    resets: &[HeaderName],
    is_denial: bool,
) -> Option<Duration> {
    let nothing_left = match headers.contains_key(remaining) {
        true => items(headers, remaining).any(is_zero),
        false => is_denial,
    };
    let waits = || resets.iter().flat_map(|name| items(headers, name)).filter_map(|item| times.until_reset(item)).max();
    if nothing_left { waits() } else { None }
}

/// Reads one line of `RateLimit`: a List of named limits in revision 11 of the draft (`"name";r=0;t=5`), a Dictionary
/// in revision 07 (`limit=100, remaining=0, reset=5`).
fn in_list(line: &[u8], times: Times) -> Option<Duration> {
    let (mut longest, mut dictionary) = (None, Limit::default());
    for member in split(line, b',') {
        let mut parts = split(member, b';').map(pair);
        match parts.next() {
            Some((b"remaining", text)) => dictionary.nothing_left |= is_zero(text),
            Some((b"reset", text)) => dictionary.wait = dictionary.wait.max(times.until_reset(text)),
            _ => {}
        }
        let mut named = Limit::default();
        for (name, text) in parts {
            match name {
                b"r" => named.nothing_left = is_zero(text),
                b"t" => named.wait = times.until_reset(text),
                _ => {}
            }
        }
        longest = longest.max(named.until_reset());
    }
    longest.max(dictionary.until_reset())
}

#[derive(Default)]
struct Limit {
    nothing_left: bool,
    wait: Option<Duration>,
}

impl Limit {
    fn until_reset(self) -> Option<Duration> {
        self.wait.filter(|_| self.nothing_left)
    }
}

/// The items of all lines of a field, without their parameters.
fn items<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let members = headers.get_all(name).into_iter().flat_map(|line| split(line.as_bytes(), b','));
    members.filter_map(|member| split(member, b';').next())
}

/// Splits at each separator that is not in a quoted String. A `"` or `\` in a String is escaped with `\`.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |&byte| {
        let is_escaped = std::mem::take(&mut escaped);
        match byte {
            _ if is_escaped => {}
            b'"' => quoted = !quoted,
            b'\\' => escaped = quoted,
            _ => return byte == separator && !quoted,
        }
        false
    })
}

/// Splits `name=value`, without blanks around either. The value is empty if there is no `=`.
fn pair(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| byte == b'=').unwrap_or(text.len());
    (text[..end].trim_ascii(), text.get(end + 1..).unwrap_or_default().trim_ascii())
}

fn is_zero(text: &[u8]) -> bool {
    number(text.trim_ascii()) == Some(0)
}

/// The smallest number that is read as a time since the Unix epoch instead of a wait.
const EPOCH_SECONDS: u64 = 1_000_000_001;
/// The smallest number that is read as milliseconds since the Unix epoch, because as seconds it is the year 33 658.
const EPOCH_MILLIS: u64 = 1_000_000_000_000;

/// The times of a response, with which its fields are compared.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// When the upstream wrote the response, since the Unix epoch: its `Date` field, or the local time without one.
    /// With the field, the clocks of client and upstream need not agree.
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

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use http::HeaderValue;

    use super::*;

    fn wait_in(is_denial: bool, lines: &[(&str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let now: SystemTime = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        wait(&headers, Times::of(&headers, now), is_denial).map(|wait| wait.as_secs())
    }

    #[test]
    fn a_list_of_revision_11_waits_for_each_limit_with_nothing_left() {
        for (line, seconds) in [
            (r#""p";r=0;t=40"#, Some(40)),
            (r#""p";t=40;r=0"#, Some(40)),
            (r#""p" ; r=0 ; t=40"#, Some(40)),
            (r#"p;r=0;t=40"#, Some(40)),
            (r#""p";r=1;t=40"#, None),
            (r#""p";r=0"#, None),
            (r#""p";t=40"#, None),
            (r#""a";r=5;t=90, "b";r=0;t=7, "c";r=0;t=3"#, Some(7)),
            (r#""p";r=0;t=40;pk=:cHs=:"#, Some(40)),
            // Quoted names with separators and escapes.
            (r#""a, b; r=0;t=99";r=5;t=90"#, None),
            (r#""a\"; r=0;t=99, \\";r=5;t=90"#, None),
            (r#""a\\";r=0;t=6"#, Some(6)),
            (r#""remaining=0, reset=99";r=2;t=3"#, None),
            (r#""unclosed;r=0;t=5"#, None),
            (r#""p";r=-0;t=5"#, None),
            (r#""p";r=0;t=-5"#, None),
            (r#""p";r="0";t="5""#, None),
            (r#""p";r=0;t=5, "p";r=9;t=1"#, Some(5)),
            (r#""p";r=0;r=9;t=5"#, None),
            (",;,=;==,", None),
        ] {
            assert_eq!(wait_in(false, &[("ratelimit", line)]), seconds, "{line}");
        }
        let lines = [("ratelimit", r#""a";r=0;t=4"#), ("ratelimit", r#""b";r=0;t=8"#)];
        assert_eq!(wait_in(false, &lines), Some(8), "each line counts");
    }

    #[test]
    fn a_dictionary_of_revision_07_waits_for_its_reset() {
        for (line, seconds) in [
            ("limit=100, remaining=0, reset=5", Some(5)),
            ("reset=5,remaining=0,limit=100", Some(5)),
            ("limit=100, remaining=1, reset=5", None),
            ("limit=100, remaining=0", None),
            ("limit=100;w=1, remaining=0;x=1, reset=5;y", Some(5)),
        ] {
            assert_eq!(wait_in(false, &[("ratelimit", line)]), seconds, "{line}");
        }
    }

    #[test]
    fn separate_fields_wait_for_their_own_reset() {
        for prefix in ["ratelimit", "x-ratelimit"] {
            let (remaining, reset) = (&*format!("{prefix}-remaining"), &*format!("{prefix}-reset"));
            let limit = (&*format!("{prefix}-limit"), r#"100, 100;w=60;name="a, 0""#);
            assert_eq!(wait_in(false, &[limit, (remaining, "0"), (reset, "60")]), Some(60));
            assert_eq!(wait_in(false, &[limit, (remaining, "1"), (reset, "60")]), None);
            assert_eq!(wait_in(false, &[limit, (reset, "60")]), None);
            assert_eq!(wait_in(true, &[limit, (reset, "60")]), Some(60), "a denial has nothing left");
            assert_eq!(wait_in(true, &[(remaining, "7"), (reset, "60")]), None, "unless it says so");
            assert_eq!(wait_in(false, &[(remaining, "0"), (reset, "1767225660")]), Some(60));
            assert_eq!(wait_in(false, &[(remaining, "0"), (reset, "1767225660000")]), Some(60), "milliseconds");
            assert_eq!(wait_in(false, &[(remaining, "0"), (reset, "1767225599")]), None, "has passed");
            assert_eq!(wait_in(false, &[(remaining, "0"), (reset, "1000000000")]), Some(1_000_000_000));
            assert_eq!(wait_in(false, &[(remaining, "0, 5"), (reset, "9, 60")]), Some(60));
            assert_eq!(wait_in(false, &[(remaining, "5"), (remaining, "0"), (reset, "9"), (reset, "x")]), Some(9));
        }
        assert_eq!(wait_in(false, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-after", "8")]), Some(8));
        let mixed = [("x-ratelimit-remaining", "0"), ("ratelimit-remaining", "5"), ("ratelimit-reset", "60")];
        assert_eq!(wait_in(false, &mixed), None, "a reset belongs to the fields of its own kind");
    }

    #[test]
    fn the_age_of_a_stored_response_has_passed() {
        let spent = ("ratelimit", r#""p";r=0;t=40"#);
        assert_eq!(wait_in(false, &[spent, ("age", "15")]), Some(25));
        assert_eq!(wait_in(false, &[spent, ("age", "100")]), Some(0));
        assert_eq!(wait_in(false, &[spent, ("age", "old")]), Some(40));
    }
}
