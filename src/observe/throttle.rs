//! Throttles, which limit how often a warning is written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Spaces the warnings of one kind.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    next_us: AtomicU64,
    left_out: AtomicU64,
}

impl Throttle {
    /// Allows one warning every `pause_us`. Returns the number of warnings left out since the last allowed one, or
    /// `None` if this warning is left out too.
    pub(crate) fn claim(&self, now_us: u64, pause_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        // If the next warning is further away than a pause, the clock was put back.
        let early = now_us < next_us && next_us - now_us <= pause_us;
        let mine = || self.next_us.compare_exchange(next_us, now_us + pause_us, Ordering::Relaxed, Ordering::Relaxed);
        if early || mine().is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }

    /// Allows a warning although none is due. Returns the number of warnings left out since the last allowed one.
    #[cfg(feature = "tracing")]
    pub(super) fn insist(&self, now_us: u64, pause_us: u64) -> u64 {
        self.next_us.store(now_us + pause_us, Ordering::Relaxed);
        self.left_out.swap(0, Ordering::Relaxed)
    }

    /// Forgets the warnings that were left out.
    #[cfg(feature = "tracing")]
    pub(super) fn forget(&self) {
        self.left_out.store(0, Ordering::Relaxed);
    }
}

/// Allows a warning once.
#[derive(Debug, Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// Returns `true` for the first caller only.
    pub(crate) fn claim(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }

    /// Whether nobody has claimed the warning.
    pub(crate) fn is_due(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    /// Allows the warning again.
    pub(crate) fn rearm(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
