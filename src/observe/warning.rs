//! When a warning may be written, and what it is followed by.

use std::sync::atomic::{AtomicU64, Ordering};

/// Warnings of one cause are so far apart.
const PAUSE_US: u64 = 1_000_000;

/// When warnings of one cause may be written.
#[derive(Debug, Default)]
pub(super) struct Cause {
    next_us: AtomicU64,
    left_out: AtomicU64,
}

impl Cause {
    /// The right to warn, with how many could not since the last warning; `None` if it is too early.
    pub(super) fn claim(&self, now_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        // Farther away than a pause: the clock was put back.
        let early = now_us < next_us && next_us - now_us <= PAUSE_US;
        let mine = || self.next_us.compare_exchange(next_us, now_us + PAUSE_US, Ordering::Relaxed, Ordering::Relaxed);
        if early || mine().is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

/// Since when the store has not answered. Begins with a warning only, so that recoveries are no more frequent than
/// warnings are.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// 0: there is none.
    since_us: AtomicU64,
    failed: AtomicU64,
}

impl Outage {
    pub(super) fn failed(&self, now_us: u64, warned: bool) {
        if warned && self.since_us.compare_exchange(0, now_us.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.failed.store(0, Ordering::Relaxed);
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// When it began and how many checks failed, once.
    pub(super) fn end(&self) -> Option<(u64, u64)> {
        if self.since_us.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let since_us = self.since_us.swap(0, Ordering::Relaxed);
        (since_us != 0).then(|| (since_us, self.failed.load(Ordering::Relaxed)))
    }
}
