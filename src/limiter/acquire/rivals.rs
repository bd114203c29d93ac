//! Rivals: other processes, or other callers of this process, that spend from the same key.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

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
    /// Whether a rival took the units that this process has been waiting for.
    has_lost: bool,
    /// Whether this process lets others go first.
    yields: bool,
}

/// Number of admissions without a sign of rivals after which a process takes itself to be alone.
const ALONE_AFTER: u8 = 4;
/// The part of the available units that a process with rivals takes at once.
const PART: u32 = 8;
/// The part of a wait by which the checks of rivals are spread.
const SPREAD_PART: u32 = 16;
/// The longest time by which the checks of rivals are spread.
const LONGEST_SPREAD: Duration = Duration::from_millis(3);

impl Rivals {
    pub(super) fn are_likely(&self) -> bool {
        self.alone_for < ALONE_AFTER
    }

    /// Records an admission. `seen` says whether units are missing that this process has not spent.
    pub(super) fn won(&mut self, seen: bool) {
        self.alone_for = if seen { 0 } else { (self.alone_for + 1).min(ALONE_AFTER) };
        self.yields = self.has_lost;
        self.has_lost = false;
    }

    /// Records that units were gone that this process had waited for.
    pub(super) fn lost(&mut self) {
        *self = Self { alone_for: 0, has_lost: true, yields: false };
    }

    /// The units to take at most, of those that are available.
    pub(super) fn share_of(&self, available: u32) -> u32 {
        if self.are_likely() { (available / PART).max(1) } else { available }
    }

    /// How much later than necessary the next check is sent, after a wait of `wait` for units that come back every
    /// `interval`.
    pub(super) fn delay(&mut self, wait: Duration, interval: Duration) -> Duration {
        if !self.are_likely() {
            return Duration::ZERO;
        }
        let turn = if std::mem::take(&mut self.yields) { interval } else { Duration::ZERO };
        turn.saturating_add(random_up_to((wait / SPREAD_PART).min(LONGEST_SPREAD)))
    }
}

fn random_up_to(most: Duration) -> Duration {
    // Each `RandomState` has new random keys, so the hash of a constant is a random number.
    let random = RandomState::new().hash_one(0_u8) >> 32;
    most.mul_f64(random as f64 / f64::from(u32::MAX))
}
