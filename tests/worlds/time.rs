//! The time of the world of this thread, in milliseconds since its start.

use std::{cell::Cell, time::Duration};

/// The world's start in microseconds since the Unix epoch: a multiple of every window.
pub(crate) const START_US: u64 = 1_767_225_600_000_000;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn now() -> u64 {
    NOW.get()
}

pub(crate) fn set(now: u64) {
    NOW.set(now);
}

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
