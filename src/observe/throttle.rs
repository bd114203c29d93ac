//! How often a warning may be written.

use std::sync::atomic::{AtomicU64, Ordering};

/// Limits how often a warning of one cause is written.
#[derive(Debug, Default)]
pub(super) struct Cause {
    next_us: AtomicU64,
    left_out: AtomicU64,
}

impl Cause {
    /// Allows one warning every `pause_us`, and tells how many were left out since the last one.
    pub(super) fn claim(&self, now_us: u64, pause_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        // Farther away than a pause: the clock was put back.
        let early = now_us < next_us && next_us - now_us <= pause_us;
        let mine = || self.next_us.compare_exchange(next_us, now_us + pause_us, Ordering::Relaxed, Ordering::Relaxed);
        if early || mine().is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}
