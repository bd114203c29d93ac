//! Rivals: other processes, or other callers of this process, that spend from the same key.

use std::time::Duration;

use crate::runtime::random;

/// What the decisions on a key reveal about others who spend from it.
///
/// A process that is alone asks at the exact time and takes all that is available. Among rivals, the heads of several
/// processes would ask at the same time, and the process that is nearest to the store would win each time. So a process
/// with rivals asks a little later, by chance; takes a part of what is available; and lets others go first after it has
/// won.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    /// The number of admissions since a rival was last seen, at most [`ALONE_AFTER`].
    alone_for: u8,
    /// Whether a rival has been seen in the last admissions.
    are_seen: bool,
    /// Whether a rival took the units that this process has been waiting for.
    has_lost: bool,
    /// Whether the last check has passed.
    has_won: bool,
    /// Whether this process lets others go first.
    yields: bool,
}

/// Number of admissions without a sign of rivals after which a process takes itself to be alone.
const ALONE_AFTER: u8 = 4;
/// The part of the available units that a process with rivals takes at once.
const PART: u64 = 16;
/// The part of a wait by which the checks of rivals are spread.
const SPREAD_PART: u32 = 16;
/// The longest time by which the checks of rivals are spread.
const LONGEST_SPREAD: Duration = Duration::from_millis(3);

/// The longest time between two parts of the units that are available. Longer than a process is usually late.
const LONGEST_SPACE: Duration = Duration::from_millis(10);
/// The longest time for which a process lets others go first.
const LONGEST_TURN: Duration = Duration::from_secs(1);

impl Rivals {
    pub(super) fn are_likely(&self) -> bool {
        self.alone_for < ALONE_AFTER
    }

    /// Records an admission. `seen` says whether units are missing that this process has not spent.
    pub(super) fn won(&mut self, seen: bool) {
        self.alone_for = if seen { 0 } else { (self.alone_for + 1).min(ALONE_AFTER) };
        self.are_seen = seen || self.are_seen && self.are_likely();
        self.yields = self.has_lost;
        self.has_lost = false;
        self.has_won = true;
    }

    /// Records that units were gone that this process had waited for.
    pub(super) fn lost(&mut self) {
        *self = Self { alone_for: 0, are_seen: true, has_lost: true, has_won: false, yields: false };
    }

    /// The units to take at most, of those that are available.
    pub(super) fn share_of(&self, available: u64) -> u64 {
        if self.are_likely() { (available / PART).max(1) } else { available }
    }

    /// How much later than necessary the next check is sent, after a wait of `wait` for units that come back every
    /// `interval`. Without a wait, this is the time since the last admission. `None` without rivals: the check is sent
    /// at the exact time.
    pub(super) fn delay(&mut self, wait: Duration, interval: Duration) -> Option<Duration> {
        if !self.are_likely() {
            return None;
        }
        let turn = if std::mem::take(&mut self.yields) { interval.min(LONGEST_TURN) } else { Duration::ZERO };
        // Units that are there already are taken part by part, so that rivals get theirs meanwhile.
        let most = match wait.is_zero() && self.has_won {
            true => interval.min(if self.are_seen { LONGEST_SPACE } else { LONGEST_SPREAD }),
            false => (wait / SPREAD_PART).min(LONGEST_SPREAD),
        };
        Some(turn.saturating_add(random_up_to(most)))
    }
}

fn random_up_to(most: Duration) -> Duration {
    let random = random::number() >> 32;
    most.mul_f64(random as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(20);

    #[test]
    fn a_process_is_taken_to_be_alone_after_four_admissions_and_not_after_a_loss() {
        let mut rivals = Rivals::default();
        for _ in 0..4 {
            assert!(rivals.are_likely());
            rivals.won(false);
        }
        assert!(!rivals.are_likely());
        assert_eq!(rivals.delay(INTERVAL, INTERVAL), None);
        assert_eq!(rivals.share_of(100), 100);
        rivals.won(true);
        assert!(rivals.are_likely());
        assert!(rivals.share_of(100) < 100 && rivals.share_of(1) == 1);
    }

    #[test]
    fn a_process_that_wins_after_a_loss_lets_others_go_first_once() {
        let mut rivals = Rivals::default();
        rivals.lost();
        assert!(rivals.delay(INTERVAL, INTERVAL).unwrap() < INTERVAL);
        rivals.won(false);
        assert!(rivals.delay(INTERVAL, INTERVAL).unwrap() >= INTERVAL);
        assert!(rivals.delay(INTERVAL, INTERVAL).unwrap() < INTERVAL);
        // A turn of hours would look like a stall.
        rivals.lost();
        rivals.won(false);
        let hour = Duration::from_secs(3_600);
        assert!(rivals.delay(hour, hour).unwrap() <= LONGEST_TURN + LONGEST_SPREAD);
    }
}
