//! The aim of a queue's checks: as close as possible after the time at which units come back.

use std::time::Duration;

use tokio::time::Instant;

/// By how much checks are sent earlier or later than computed, learned from their results.
///
/// A check is late by the time in which the task wakes and prepares it. It is early if it travels faster than the last
/// one. A check that is early is denied and costs a round trip, so the aim moves by little after a hit and far after a
/// miss: in the long run one check in about [`ROUND_TRIP_PART`] round trips, counted in steps of a hit, is early.
#[derive(Debug, Default)]
pub(super) struct Aim {
    /// Microseconds by which checks are sent earlier than computed. Negative: later.
    lead_us: i64,
}

/// The step after a hit, in microseconds.
const STEP_US: i64 = 4;
/// The step after a miss is this part of the round trip.
const ROUND_TRIP_PART: u32 = 16;
/// The longest and the shortest step after a miss, in microseconds.
const MISS_US: (i64, i64) = (30, 1_000);
/// The largest adjustment, in microseconds.
const MOST_US: i64 = 1_000;

impl Aim {
    pub(super) fn adjust(&self, at: Instant) -> Instant {
        let adjustment = Duration::from_micros(self.lead_us.unsigned_abs());
        let adjusted = if self.lead_us > 0 { at.checked_sub(adjustment) } else { at.checked_add(adjustment) };
        adjusted.unwrap_or(at)
    }

    /// Records an admission.
    pub(super) fn hit(&mut self) {
        self.lead_us = (self.lead_us + STEP_US).min(MOST_US);
    }

    /// Records that a check was too early.
    pub(super) fn missed(&mut self, round_trip: Duration) {
        let step = i64::try_from((round_trip / ROUND_TRIP_PART).as_micros()).unwrap_or(i64::MAX);
        self.lead_us = (self.lead_us - step.clamp(MISS_US.0, MISS_US.1)).max(-MOST_US);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_sent_earlier_after_hits_and_later_after_misses_within_a_millisecond() {
        let (at, most) = (Instant::now() + Duration::from_secs(1), Duration::from_micros(1_000));
        let mut aim = Aim::default();
        assert_eq!(aim.adjust(at), at);
        aim.hit();
        assert!(aim.adjust(at) < at);
        (0..10_000).for_each(|_| aim.hit());
        assert_eq!(aim.adjust(at), at - most);
        (0..100).for_each(|_| aim.missed(Duration::from_secs(1)));
        assert_eq!(aim.adjust(at), at + most);
    }
}
