//! A countdown over the first requests.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of requests still to be inspected.
#[derive(Debug)]
pub(super) struct Countdown(AtomicU32);

impl Countdown {
    pub(super) const fn new(requests: u32) -> Self {
        Self(AtomicU32::new(requests))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Counts a request; returns whether it is the last one.
    pub(super) fn count(&self) -> bool {
        let down = |left: u32| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, down) == Ok(1)
    }

    /// Ends the countdown; returns whether this call has ended it.
    pub(super) fn end(&self) -> bool {
        !self.is_over() && self.0.swap(0, Ordering::Relaxed) > 0
    }
}
