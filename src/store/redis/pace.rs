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

/// The same for a server that refuses the login. It heals when a person puts it right, and each dial is a line in the
/// server's log.
const LONGEST_REFUSED: Duration = Duration::from_secs(5);
/// Logins that are refused at the ordinary pace: some seconds, in which a password may be on its way to all instances.
const REFUSALS: u32 = 10;

/// Counts dials that failed and spaces out the next ones: exponential, with jitter, for ever.
#[derive(Debug, Default)]
pub(super) struct Pace {
    failures: u32,
    /// How many of the last ones were refused.
    refusals: u32,
    started: Option<Instant>,
    jitter: RandomState,
}

impl Pace {
    /// How long the next dial has to wait.
    pub(super) fn pause(&self) -> Duration {
        let Some(started) = self.started.filter(|_| self.failures > 0) else { return Duration::ZERO };
        let most = match self.refusals.checked_sub(REFUSALS) {
            Some(more) => LONGEST.saturating_mul(2u32.saturating_pow(more.min(16))).min(LONGEST_REFUSED),
            None => LONGEST,
        };
        let longest = SHORTEST.saturating_mul(2u32.saturating_pow(self.failures.min(16))).min(most);
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
        self.refusals = 0;
    }

    /// The server refused the login.
    pub(super) fn was_refused(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.refusals = self.refusals.saturating_add(1);
    }

    pub(super) fn succeeded(&mut self) {
        (self.failures, self.refusals) = (0, 0);
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

    #[test]
    fn a_login_that_is_refused_again_and_again_is_tried_every_few_seconds() {
        let mut pace = Pace::default();
        for refusals in 1..100 {
            pace.dial_starts();
            pace.was_refused();
            let most = if refusals < REFUSALS { LONGEST } else { LONGEST_REFUSED };
            assert!(pace.pause() <= most, "{refusals}: {:?}", pace.pause());
        }
        assert!(pace.pause() >= LONGEST_REFUSED / 3);
        // Something else, to be dialled at the ordinary pace.
        pace.failed();
        assert!(pace.pause() <= LONGEST);
    }
}
