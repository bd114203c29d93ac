//! Durations in whole seconds, the unit of all fields.

use std::time::Duration;

/// Rounds up to whole seconds, so that a client that waits this long is not early.
pub(super) fn seconds_up(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// Rounds up to the seconds of `Retry-After`: at least 1, because clients that read 0 repeat the request at once, and
/// at most `i32::MAX`, because many clients read a signed 32-bit integer.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    seconds_up(wait).clamp(1, 2_147_483_647)
}
