//! A calendar one of whose windows ends within a world.

use std::time::{Duration, UNIX_EPOCH};

use tollgate::Calendar;

use crate::time::{START_US, ms};

/// The units of a window.
pub(crate) const OF_A_MONTH: u64 = 60;
/// When a window ends and the next one begins, in milliseconds.
pub(crate) const NEXT_MONTH: u64 = 1_500;

/// Months that begin a moment after the start of the world.
pub(super) fn calendar() -> Calendar {
    Calendar::anchored(UNIX_EPOCH + Duration::from_micros(START_US) + ms(NEXT_MONTH))
}
