//! Field values that are one number, and durations in whole seconds, the unit of most fields.

use std::time::Duration;

use http::HeaderValue;

/// Formats a number. Allocates once, where `HeaderValue::from(u64)` allocates twice.
pub(super) fn number(number: u64) -> HeaderValue {
    HeaderValue::from_str(itoa::Buffer::new().format(number)).expect("digits are a header value")
}

/// Reads a number; `None` if the value is missing or is not a number.
pub(super) fn read_number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}

/// Rounds up to whole seconds, so that a client that waits this long is not early.
pub(super) fn seconds_up(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// The longest wait of all fields, because many clients read the seconds of `Retry-After` as a signed 32-bit integer.
const LONGEST_SECONDS: u64 = 2_147_483_647;

/// Rounds up to the seconds of `Retry-After`: at least 1, because clients that read 0 repeat the request at once.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    seconds_up(wait).clamp(1, LONGEST_SECONDS)
}

/// Rounds up to milliseconds, at most those of the longest `Retry-After`.
pub(super) fn millis_up(wait: Duration) -> u64 {
    let longest = LONGEST_SECONDS * 1_000;
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).map_or(longest, |millis| millis.min(longest))
}
