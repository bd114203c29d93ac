//! Durations as whole microseconds.

use std::time::Duration;

/// Whole microseconds, rounded up.
pub(crate) fn micros_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}
