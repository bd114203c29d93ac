//! Durations in whole seconds, as fields have them.

use std::time::Duration;

/// Rounded up, so that a client that waits this long is not early.
pub(super) fn seconds_up(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// The value of `Retry-After`, rounded up: at least 1, because clients repeat a request at once after 0, and at most
/// `i32::MAX`, because many clients read a signed 32-bit integer.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    seconds_up(wait).clamp(1, 2_147_483_647)
}
