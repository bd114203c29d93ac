//! The machine's own share of a wait.

use crate::record::Record;

/// A timer is late by a little more than its step of a millisecond in any case.
pub(crate) const ALWAYS_LATE_US: u32 = 1_200;

/// For how long of that time sleeps were over that went on all the same: the process did not run. `late` is sorted by
/// its beginnings.
pub(crate) fn stopped_us<'a>(late: impl IntoIterator<Item = &'a Record>, from_us: u64, until_us: u64) -> u64 {
    let mut counted_us = from_us;
    let mut sum = 0;
    for late in late {
        let start = (late.start_us() + u64::from(ALWAYS_LATE_US)).max(counted_us);
        let end = late.end_us.min(until_us);
        if start < end {
            sum += end - start;
            counted_us = end;
        }
    }
    sum
}
