//! The upstream of a call: the pause that the head of its response asks for, also a head alone ("trailers-only") of
//! gRPC.

mod limits;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, header::RETRY_AFTER};

use self::limits::{Times, number, seconds};
use super::response::{HeldCall, ResponseHead};
use super::settings::Settings;
use crate::headers::{RETRY_AFTER_MS, X_AFTER};
use crate::{key::Key, limiter::LONGEST_PAUSE, runtime::real_time::wall_time};

/// What a call needs once it has a response.
pub(super) struct Upstream<H> {
    settings: Arc<Settings>,
    key: Key,
    head: Arc<H>,
}

impl<H> Upstream<H> {
    pub(super) fn new(settings: Arc<Settings>, key: Key, head: Arc<H>) -> Self {
        Self { settings, key, head }
    }

    /// The response of the throttled client, which carries `held` if it can.
    pub(super) fn finish<Res>(&self, response: Res, held: Option<HeldCall>) -> H::Response
    where
        H: ResponseHead<Res>,
    {
        self.head.finish(response, held)
    }

    /// Pauses the calls of the key if the response asks for it.
    pub(super) fn obey<Res>(&self, response: &Res)
    where
        H: ResponseHead<Res>,
    {
        let (status, headers) = self.head.head(response);
        if let Some(pause) = pause_of(status, headers, wall_time()) {
            self.settings.pause(&self.key, pause);
        }
    }
}

/// The codes of responses, beside 429, that ask for a pause if they state one: 403 is GitHub's secondary limit, 420
/// that of older APIs of Twitter, 503 that of HTTP itself (RFC 9110), and 529 an overload of Anthropic's API.
const REFUSALS: [u16; 4] = [403, 420, 503, 529];

/// The pause after a 429 that states none.
const UNSTATED: Duration = Duration::from_secs(1);

/// The shortest pause after a 429. An upstream that refuses and states a wait of zero would otherwise be called again
/// at once, call after call.
const SHORTEST_AFTER_DENIAL: Duration = Duration::from_millis(100);

/// The time for which no call should follow a response with this head; `None` for a response that asks for no pause.
///
/// `now` is the time of the response if it has no `Date`. Fields that cannot be read are ignored.
fn pause_of(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let times = Times::of(headers, now);
    let is_denial = status == StatusCode::TOO_MANY_REQUESTS;
    let stated = match status.as_u16() {
        429 => retry_after(headers, times).max(longest(headers, &X_AFTER, times)),
        code if REFUSALS.contains(&code) => retry_after(headers, times),
        _ if is_refusal(headers) => pushback(headers).max(longest(headers, &RETRY_AFTER, times)),
        _ => None,
    };
    let pause = stated.max(limits::wait(headers, times, is_denial)).or(is_denial.then_some(UNSTATED))?;
    let pause = if is_denial { pause.max(SHORTEST_AFTER_DENIAL) } else { pause };
    Some(pause.min(LONGEST_PAUSE)).filter(|pause| !pause.is_zero())
}

/// The wait until a retry, in seconds, as a date, or in milliseconds.
fn retry_after(headers: &HeaderMap, times: Times) -> Option<Duration> {
    longest(headers, &RETRY_AFTER, times).max(longest(headers, &RETRY_AFTER_MS, times).map(|millis| millis / 1_000))
}

/// The longest wait in the lines of a field that contains a number of seconds or a date.
fn longest(headers: &HeaderMap, name: &HeaderName, times: Times) -> Option<Duration> {
    let waits = headers.get_all(name).iter().map(|line| {
        let line = line.as_bytes();
        // A proxy may have joined two lines. A date contains a comma, so it is read first.
        times.until_date(line).or_else(|| line.split(|&byte| byte == b',').filter_map(seconds).max())
    });
    waits.max().flatten()
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Whether the status is 8 `RESOURCE_EXHAUSTED` or 14 `UNAVAILABLE`. Without a wait in another field they ask for no
/// pause, because `RESOURCE_EXHAUSTED` is also the status of messages that are too large.
fn is_refusal(headers: &HeaderMap) -> bool {
    headers.get(GRPC_STATUS).is_some_and(|status| matches!(status.as_bytes(), b"8" | b"14"))
}

/// The wait in milliseconds. A negative number says that no wait helps, and is no wait.
fn pushback(headers: &HeaderMap) -> Option<Duration> {
    let waits = headers.get_all(GRPC_RETRY_PUSHBACK_MS).iter().filter_map(|wait| number(wait.as_bytes().trim_ascii()));
    waits.max().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: u64 = 784_111_777;

    /// The pause that a head with these lines asks for, in milliseconds.
    fn pause(status: u16, lines: &[(&str, &[u8])]) -> Option<u128> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        pause_of(StatusCode::from_u16(status).unwrap(), &headers, now).map(|pause| pause.as_millis())
    }

    #[test]
    fn a_refusal_with_a_wait_pauses_for_as_long() {
        for status in [429, 503] {
            assert_eq!(pause(status, &[("retry-after", b"2")]), Some(2_000));
            assert_eq!(pause(status, &[("retry-after", b" 2 ")]), Some(2_000));
            assert_eq!(pause(status, &[("retry-after", b"0.25")]), Some(250));
            assert_eq!(pause(status, &[("retry-after", b"Sun, 06 Nov 1994 08:49:40 GMT")]), Some(3_000));
            assert_eq!(pause(status, &[("retry-after", b"Sunday, 06-Nov-94 08:49:40 GMT")]), Some(3_000));
            assert_eq!(pause(status, &[("retry-after", b"2"), ("retry-after", b"30")]), Some(30_000));
            assert_eq!(pause(status, &[("retry-after", b"5, 30")]), Some(30_000));
        }
        assert_eq!(pause(503, &[("retry-after", b"0")]), None);
        assert_eq!(pause(429, &[("retry-after", b"0")]), Some(100), "a refusal is no invitation to call at once");
        assert_eq!(pause(200, &[("retry-after", b"2")]), None);
        assert_eq!(pause(301, &[("retry-after", b"2")]), None);
        assert_eq!(pause(429, &[("x-ratelimit-after", b"7")]), Some(7_000));
        assert_eq!(pause(429, &[("x-ratelimit-after", b"7"), ("retry-after", b"3")]), Some(7_000));
    }

    #[test]
    fn a_date_counts_from_the_date_of_the_response() {
        let retry = ("retry-after", &b"Sun, 06 Nov 1994 08:49:40 GMT"[..]);
        // The clock of the upstream is an hour ahead of this one, then an hour behind.
        let (ahead, behind) = (&b"Sun, 06 Nov 1994 08:49:38 GMT"[..], &b"Sun, 06 Nov 1994 07:49:39 GMT"[..]);
        assert_eq!(pause(503, &[retry, ("date", ahead)]), Some(2_000));
        assert_eq!(pause(503, &[("retry-after", b"Sun, 06 Nov 1994 07:49:40 GMT"), ("date", behind)]), Some(1_000));
        assert_eq!(pause(503, &[retry, ("date", b"yesterday")]), Some(3_000));
        let reset = [("x-ratelimit-remaining", &b"0"[..]), ("x-ratelimit-reset", b"1767225605")];
        let date = ("date", &b"Thu, 01 Jan 2026 00:00:00 GMT"[..]);
        assert_eq!(pause(200, &[reset[0], reset[1], date]), Some(5_000));
    }

    #[test]
    fn a_429_without_a_usable_wait_pauses_for_a_second() {
        assert_eq!(pause(429, &[]), Some(1_000));
        for text in [&b""[..], b"-5", b"+5", b"soon", b"1e3", b".5", b"5.", b"0x10", b"\xff", b"inf", b"NaN"] {
            assert_eq!(pause(429, &[("retry-after", text)]), Some(1_000), "{text:?}");
        }
        // A date in the past shows that the clocks disagree.
        assert_eq!(pause(429, &[("retry-after", b"Sun, 06 Nov 1994 08:49:36 GMT")]), Some(1_000));
        assert_eq!(pause(503, &[]), None);
        assert_eq!(pause(503, &[("retry-after", b"soon")]), None);
    }

    #[test]
    fn no_pause_is_longer_than_an_hour() {
        for text in [&b"3601"[..], b"99999999999999999999999999", b"18446744073709551615.9999999999999"] {
            assert_eq!(pause(429, &[("retry-after", text)]), Some(3_600_000), "{text:?}");
            let spent = [("ratelimit-remaining", &b"0"[..]), ("ratelimit-reset", text)];
            assert_eq!(pause(200, &spent), Some(3_600_000), "{text:?}");
            assert_eq!(
                pause(200, &[("grpc-status", b"8"), ("grpc-retry-pushback-ms", b"99999999999")]),
                Some(3_600_000)
            );
        }
        assert_eq!(pause(429, &[("retry-after", b"Fri, 31 Dec 9999 23:59:59 GMT")]), Some(3_600_000));
    }

    #[test]
    fn a_refused_grpc_call_pauses_if_it_states_a_wait() {
        for status in [&b"8"[..], b"14"] {
            let status = ("grpc-status", status);
            assert_eq!(pause(200, &[status, ("grpc-retry-pushback-ms", b"1500")]), Some(1_500));
            assert_eq!(pause(200, &[status, ("grpc-retry-pushback-ms", b"-1")]), None);
            assert_eq!(pause(200, &[status, ("retry-after", b"3")]), Some(3_000));
            assert_eq!(pause(200, &[status, ("retry-after", b"1"), ("grpc-retry-pushback-ms", b"1500")]), Some(1_500));
            assert_eq!(pause(200, &[status]), None);
        }
        assert_eq!(pause(200, &[("grpc-status", b"13"), ("grpc-retry-pushback-ms", b"1500")]), None);
        assert_eq!(pause(200, &[("grpc-retry-pushback-ms", b"1500")]), None);
    }

    #[test]
    fn the_longest_of_all_waits_applies() {
        let spent =
            [("ratelimit", &br#""p";r=0;t=40"#[..]), ("x-ratelimit-remaining", b"0"), ("x-ratelimit-reset", b"9")];
        assert_eq!(pause(200, &spent), Some(40_000));
        assert_eq!(pause(429, &[spent[0], ("retry-after", b"50")]), Some(50_000));
        assert_eq!(pause(429, &[spent[0], ("retry-after", b"30")]), Some(40_000));
        assert_eq!(pause(503, &spent), Some(40_000));
    }
}
