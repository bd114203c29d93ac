//! How often a server that cannot be reached is dialled.

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

/// From the start of one dial to the start of the next one, at the least.
const SHORTEST: Duration = Duration::from_millis(50);
/// And at the most, also if the one before has not ended: with the breaker's probes, limits hold again within a second
/// of the server's return.
pub(super) const LONGEST: Duration = Duration::from_millis(400);

/// Counts dials that failed and spaces out the next ones: exponential, with jitter, for ever.
#[derive(Debug, Default)]
pub(super) struct Pace {
    failures: u32,
    started: Option<Instant>,
    jitter: RandomState,
}

impl Pace {
    /// How long the next dial has to wait.
    pub(super) fn pause(&self) -> Duration {
        let Some(started) = self.started.filter(|_| self.failures > 0) else { return Duration::ZERO };
        let longest = SHORTEST.saturating_mul(2u32.saturating_pow(self.failures.min(16))).min(LONGEST);
        // Between half of it and all of it, so that a fleet does not come back in step.
        let share = self.jitter.hash_one(self.failures) % 1024;
        let pause = longest / 2 + (longest / 2).mul_f64(share as f64 / 1024.0);
        pause.saturating_sub(started.elapsed())
    }

    pub(super) fn dial_starts(&mut self) {
        self.started = Some(Instant::now());
    }

    /// The dial failed, or what it made broke at once.
    pub(super) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dial_is_at_once_and_later_ones_are_fifty_to_four_hundred_milliseconds_apart() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(), Duration::ZERO);
        let mut last = Duration::ZERO;
        for failures in 0..1_000 {
            pace.dial_starts();
            pace.failed();
            let pause = pace.pause();
            assert!(pause <= LONGEST && pause + Duration::from_millis(20) >= SHORTEST, "{failures}: {pause:?}");
            last = pause;
        }
        assert!(last >= LONGEST / 3, "{last:?}");
        pace.succeeded();
        assert_eq!(pace.pause(), Duration::ZERO);
    }
}
