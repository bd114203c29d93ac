//! Field values that are one number.

use http::HeaderValue;

/// Formats a number. Allocates once, where `HeaderValue::from(u64)` allocates twice.
pub(super) fn number(number: u64) -> HeaderValue {
    HeaderValue::from_str(itoa::Buffer::new().format(number)).expect("digits are a header value")
}

/// Reads a number; `None` if the value is missing or is not a number.
pub(super) fn read_number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}
