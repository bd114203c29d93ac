//! The pause between two dials of a server that cannot be reached.

use std::{hash::BuildHasher, time::Duration};

use tokio::time::Instant;

use crate::runtime::random::RandomState;

/// The shortest pause from the start of one dial to the start of the next.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause from the start of one dial to the start of the next, even if the first one has not ended. With the
/// probes of the breaker, limits hold again within a second of the server's return.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(400);

/// The longest pause for a server that refuses the login. A person has to correct the login, and each dial adds a line
/// to the server's log.
const MAX_PAUSE_REFUSED: Duration = Duration::from_secs(5);
/// Refused logins before the pause exceeds [`MAX_PAUSE`]: some seconds, in which a new password may reach all
/// instances.
const REFUSALS_AT_FULL_RATE: u32 = 10;

/// Exponential backoff with jitter, for any number of dials.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    /// Refused logins in a row.
    refusals: u32,
    started: Option<Instant>,
    jitter: RandomState,
}

impl Backoff {
    /// Time until the next dial may start.
    pub(crate) fn pause(&self) -> Duration {
        let Some(started) = self.started.filter(|_| self.failures > 0) else { return Duration::ZERO };
        let most = match self.refusals.checked_sub(REFUSALS_AT_FULL_RATE) {
            Some(more) => MAX_PAUSE.saturating_mul(2u32.saturating_pow(more.min(16))).min(MAX_PAUSE_REFUSED),
            None => MAX_PAUSE,
        };
        let longest = MIN_PAUSE.saturating_mul(2u32.saturating_pow(self.failures.min(16))).min(most);
        // Between half of the pause and all of it, so that the instances of a fleet do not dial at the same time.
        let share = self.jitter.hash_one(self.failures) % 1024;
        let pause = longest / 2 + (longest / 2).mul_f64(share as f64 / 1024.0);
        pause.saturating_sub(started.elapsed())
    }

    pub(crate) fn dial_starts(&mut self) {
        self.started = Some(Instant::now());
    }

    /// Records a dial that failed, or whose connection broke at once.
    pub(crate) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.refusals = 0;
    }

    /// Records a dial whose login was refused.
    pub(crate) fn was_refused(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.refusals = self.refusals.saturating_add(1);
    }

    pub(crate) fn succeeded(&mut self) {
        (self.failures, self.refusals) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dial_is_at_once_and_later_ones_are_fifty_to_four_hundred_milliseconds_apart() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.pause(), Duration::ZERO);
        let mut last = Duration::ZERO;
        for failures in 0..1_000 {
            backoff.dial_starts();
            backoff.failed();
            let pause = backoff.pause();
            assert!(pause <= MAX_PAUSE && pause + Duration::from_millis(20) >= MIN_PAUSE, "{failures}: {pause:?}");
            last = pause;
        }
        assert!(last >= MAX_PAUSE / 3, "{last:?}");
        backoff.succeeded();
        assert_eq!(backoff.pause(), Duration::ZERO);
    }

    #[test]
    fn a_login_that_is_refused_again_and_again_is_tried_every_few_seconds() {
        let mut backoff = Backoff::default();
        for refusals in 1..100 {
            backoff.dial_starts();
            backoff.was_refused();
            let most = if refusals < REFUSALS_AT_FULL_RATE { MAX_PAUSE } else { MAX_PAUSE_REFUSED };
            assert!(backoff.pause() <= most, "{refusals}: {:?}", backoff.pause());
        }
        assert!(backoff.pause() >= MAX_PAUSE_REFUSED / 3);
        // A failure of another kind ends the long pauses.
        backoff.failed();
        assert!(backoff.pause() <= MAX_PAUSE);
    }
}
