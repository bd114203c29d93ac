//! The pause between two dials of a server that cannot be reached.

use std::{hash::BuildHasher, time::Duration};

use tokio::time::Instant;

use crate::{clock::whole_micros, runtime::random::RandomState};

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
    /// Handshakes in a row that took longer than they were waited for.
    slow: u32,
    /// Whether a handshake was found to be lost since the last success.
    has_found_loss: bool,
    started: Option<Instant>,
    jitter: RandomState,
}

impl Backoff {
    /// Time until the next dial may start: at most 400 ms after the start of the last one, or up to 25.6 s while
    /// handshakes of TLS take that long. A server computes the handshakes of a fleet one after the other, and each
    /// further dial is more work for it.
    pub(crate) fn pause(&self) -> Duration {
        let Some(started) = self.started.filter(|_| self.failures > 0) else { return Duration::ZERO };
        let most = match self.refusals.checked_sub(REFUSALS_AT_FULL_RATE) {
            Some(more) => MAX_PAUSE.saturating_mul(2u32.saturating_pow(more.min(16))).min(MAX_PAUSE_REFUSED),
            None => MAX_PAUSE,
        };
        let longest = match self.slow {
            0 => MIN_PAUSE.saturating_mul(2u32.saturating_pow(self.failures.min(16))).min(most),
            _ => self.patience(MAX_PAUSE),
        };
        // Between half of the pause and all of it, so that the instances of a fleet do not dial at the same time.
        let share = self.jitter.hash_one(self.failures) % 1024;
        let pause = whole_micros(longest / 2 + (longest / 2).mul_f64(share as f64 / 1024.0));
        pause.saturating_sub(started.elapsed())
    }

    /// How long a handshake is waited for: `first`, 16 times as long if it takes longer, and twice as long with each
    /// further one in a row, up to 64 times.
    ///
    /// Redis answers in rounds: it computes the handshakes of all new connections, and then reads what the others have
    /// sent. So the second dials of a fleet hold up the first ones for a whole round. 16 times 400 ms is time for the
    /// first round of most fleets.
    pub(crate) fn patience(&self, first: Duration) -> Duration {
        let doublings = if self.slow > 0 { self.slow.saturating_add(3).min(6) } else { 0 };
        first.saturating_mul(1 << doublings)
    }

    /// Whether it may be found that a slow handshake is lost. Once, because the next one is as slow only if the server
    /// answers others before it.
    pub(crate) fn may_find_loss(&self) -> bool {
        self.slow > 0 && !self.has_found_loss
    }

    /// Records that a slow handshake is lost.
    pub(crate) fn found_loss(&mut self) {
        self.has_found_loss = true;
    }

    pub(crate) fn dial_starts(&mut self) {
        self.started = Some(Instant::now());
    }

    /// Records a dial that failed, or whose connection broke at once.
    pub(crate) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        (self.refusals, self.slow, self.has_found_loss) = (0, 0, false);
    }

    /// Records a handshake that took longer than it was waited for.
    pub(crate) fn was_slow(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.slow = self.slow.saturating_add(1);
        self.refusals = 0;
    }

    /// Records a dial whose login was refused.
    pub(crate) fn was_refused(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.refusals = self.refusals.saturating_add(1);
        (self.slow, self.has_found_loss) = (0, false);
    }

    pub(crate) fn succeeded(&mut self) {
        (self.failures, self.refusals, self.slow, self.has_found_loss) = (0, 0, 0, false);
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
    fn the_pause_grows_to_some_seconds_while_handshakes_are_slow() {
        let mut backoff = Backoff::default();
        for longest_ms in [6_400, 12_800, 25_600, 25_600] {
            backoff.dial_starts();
            backoff.was_slow();
            let longest = Duration::from_millis(longest_ms);
            let pause = backoff.pause();
            assert!(pause <= longest && pause + MIN_PAUSE >= longest / 2, "{pause:?} of {longest:?}");
        }
        backoff.failed();
        assert!(backoff.pause() <= MAX_PAUSE, "a refused connection says that the server is not busy");
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

    #[test]
    fn a_handshake_is_found_lost_once_until_a_dial_succeeds_and_the_first_has_the_usual_time() {
        let mut backoff = Backoff::default();
        for _ in 0..2 {
            assert!(!backoff.may_find_loss() && backoff.patience(MAX_PAUSE) == MAX_PAUSE);
            backoff.was_slow();
            assert!(backoff.may_find_loss() && backoff.patience(MAX_PAUSE) == 16 * MAX_PAUSE);
            backoff.found_loss();
            backoff.was_slow();
            assert!(!backoff.may_find_loss());
            backoff.succeeded();
        }
    }
}
