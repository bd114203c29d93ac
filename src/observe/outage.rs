//! The start and the end of an outage, and when the next line about it is due.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Time between two lines during an outage, in microseconds.
const PAUSE_US: u64 = 60_000_000;
/// Shortest time, in microseconds, from the end of an outage to the first line about the next outage, so that an
/// unsteady store does not fill a log.
const PAUSE_AFTER_US: u64 = 10_000_000;
/// An outage ends when the store answers and no check has failed for this time, in microseconds. One failure domain may
/// be down while others answer.
const QUIET_US: u64 = 1_000_000;

/// The outage of one store. [`is_on`](Self::is_on), which every answer calls, is one load.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// When the outage started; 0 without an outage.
    since_us: AtomicU64,
    /// When a check last got no verdict.
    latest_us: AtomicU64,
    /// When the store first answered after the latest failure; 0 before.
    back_us: AtomicU64,
    /// Number of checks without a verdict.
    failed: AtomicU64,
    /// When the next line is due.
    next_line_us: AtomicU64,
    /// Whether a line has reported the start of this outage.
    reported: AtomicBool,
}

/// The length of an outage, and the number of checks without a verdict.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Length {
    pub(super) us: u64,
    pub(super) failed: u64,
}

impl Outage {
    /// Counts a check without a verdict. Returns the length of the outage so far if a line is due; 0 for the first
    /// line.
    pub(super) fn failed(&self, now_us: u64) -> Option<Length> {
        // 0 means no outage.
        let now_us = now_us.max(1);
        let _ = self.since_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        self.latest_us.store(now_us, Ordering::Relaxed);
        self.back_us.store(0, Ordering::Relaxed);
        let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        let due_us = self.next_line_us.load(Ordering::Relaxed);
        let claim = || {
            self.next_line_us.compare_exchange(due_us, now_us + PAUSE_US, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if now_us < due_us || !claim() {
            return None;
        }
        let is_first = !self.reported.swap(true, Ordering::Relaxed);
        let since_us = if is_first { now_us } else { self.since_us.load(Ordering::Relaxed) };
        Some(Length { us: now_us.saturating_sub(since_us), failed })
    }

    /// Whether there is an outage, which an answer may end.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.since_us.load(Ordering::Relaxed) != 0
    }

    /// Records an answer. Returns the length of the outage if this answer ends it and its start was reported.
    pub(super) fn answered(&self, now_us: u64) -> Option<Length> {
        let _ = self.back_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        if now_us.saturating_sub(self.latest_us.load(Ordering::Relaxed)) < QUIET_US {
            return None;
        }
        let since_us = self.since_us.swap(0, Ordering::Relaxed);
        if since_us == 0 {
            return None;
        }
        let failed = self.failed.swap(0, Ordering::Relaxed);
        let reported = self.reported.swap(false, Ordering::Relaxed);
        if reported {
            self.next_line_us.store(now_us + PAUSE_AFTER_US, Ordering::Relaxed);
        }
        let back_us = self.back_us.load(Ordering::Relaxed);
        reported.then_some(Length { us: back_us.saturating_sub(since_us), failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn an_outage_is_reported_at_its_start_each_minute_and_at_its_end() {
        let outage = Outage::default();
        let start = 1_000 * SECOND;
        let reported: Vec<u64> =
            (0..=150 * 10).filter(|tenth| outage.failed(start + tenth * SECOND / 10).is_some()).collect();
        assert_eq!(reported, [0, 600, 1_200]);
        let end = start + 150 * SECOND;
        // Other failure domains may answer meanwhile.
        assert_eq!(outage.answered(end + SECOND / 2), None);
        assert!(outage.is_on());
        assert_eq!(outage.answered(end + SECOND), Some(Length { us: 150 * SECOND + SECOND / 2, failed: 1_501 }));
        assert!(!outage.is_on());
        assert_eq!(outage.answered(end + 2 * SECOND), None);
    }

    #[test]
    fn an_unsteady_store_has_at_most_two_lines_in_ten_seconds() {
        let outage = Outage::default();
        let (mut begun, mut ended) = (0, 0);
        for second in 0..100 {
            let now = (1_000 + 2 * second) * SECOND;
            begun += u64::from(outage.failed(now).is_some());
            ended += u64::from(outage.answered(now + SECOND + 1).is_some());
        }
        assert_eq!(begun, ended);
        assert!((10..=20).contains(&begun), "{begun}");
    }
}
