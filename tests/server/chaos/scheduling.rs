//! The part of a wait during which the process did not run.

use crate::record::Record;

/// Normal overrun of a sleep: the timer's step of a millisecond and a margin.
pub(crate) const TIMER_SLACK_US: u32 = 1_200;

/// The part of the period that is covered by overruns of sleeps, in microseconds. `late` must be sorted by start time.
pub(crate) fn stopped_us<'a>(late: impl IntoIterator<Item = &'a Record>, from_us: u64, until_us: u64) -> u64 {
    let mut counted_us = from_us;
    let mut sum = 0;
    for late in late {
        let start = (late.start_us() + u64::from(TIMER_SLACK_US)).max(counted_us);
        let end = late.end_us.min(until_us);
        if start < end {
            sum += end - start;
            counted_us = end;
        }
    }
    sum
}
