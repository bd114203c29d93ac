//! The pauses of a limiter, also of keys that no call waits for: what this process was asked for, and what the store
//! says of the fleet.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::{forecast::after, seat::QueueId};

/// The paused keys of a limiter, in a bounded number.
#[derive(Debug)]
pub(super) struct PausedKeys {
    by_key: HashMap<QueueId, (PauseEnd, KeyPause)>,
    by_end: BTreeMap<PauseEnd, QueueId>,
    last_number: u64,
    /// The largest number of paused keys.
    max: usize,
    fullness: Fullness,
}

/// When a pause ends, and a number that distinguishes it from others that end at the same time.
type PauseEnd = (Instant, u64);

/// Whether pauses were given up, because too many keys were paused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fullness {
    Never,
    /// Not reported yet.
    Due,
    Reported,
}

/// A paused key takes less than 500 bytes, so the pauses of a limiter take less than 50 MB.
const MAX: usize = 100_000;

/// The most pauses that a new pause removes because they are over. More than one, so that their number falls.
const REMOVED_AT_ONCE: usize = 2;

impl PausedKeys {
    /// Changes the pause of a key.
    ///
    /// If too many keys are paused, the pause that ends first is given up: its upstream is called too early, but by the
    /// shortest time.
    pub(super) fn change(&mut self, id: QueueId, now: Instant, change: impl FnOnce(&mut KeyPause)) {
        for _ in 0..REMOVED_AT_ONCE {
            if self.by_end.first_key_value().is_some_and(|((first, _), _)| *first <= now) {
                self.remove_first();
            }
        }
        let mut pause = self.pause(&id);
        change(&mut pause);
        let Some(end) = pause.end(true, now) else {
            self.remove(&id);
            return;
        };
        if let Some((present, kept)) = self.by_key.get_mut(&id)
            && present.0 == end
        {
            *kept = pause;
            return;
        }
        self.remove(&id);
        self.last_number += 1;
        let end = (end, self.last_number);
        self.by_end.insert(end, id.clone());
        self.by_key.insert(id, (end, pause));
        if self.by_key.len() > self.max {
            self.remove_first();
            if self.fullness == Fullness::Never {
                self.fullness = Fullness::Due;
            }
        }
    }

    /// The largest number of paused keys, once after pauses were given up because of it.
    pub(super) fn claim_warning(&mut self) -> Option<usize> {
        if self.fullness != Fullness::Due {
            return None;
        }
        self.fullness = Fullness::Reported;
        Some(self.max)
    }

    /// The pause of a key, which may be over.
    pub(super) fn pause(&self, id: &QueueId) -> KeyPause {
        self.by_key.get(id).map(|(_, pause)| *pause).unwrap_or_default()
    }

    /// Forgets the pause of a key.
    pub(super) fn remove(&mut self, id: &QueueId) {
        if let Some((end, _)) = self.by_key.remove(id) {
            self.by_end.remove(&end);
        }
    }

    fn remove_first(&mut self) {
        if let Some((_, id)) = self.by_end.pop_first() {
            self.by_key.remove(&id);
        }
    }
}

impl Default for PausedKeys {
    fn default() -> Self {
        let (by_key, by_end) = (HashMap::new(), BTreeMap::new());
        Self { by_key, by_end, last_number: 0, max: MAX, fullness: Fullness::Never }
    }
}

/// The longest pause. It bounds the harm of a malformed field, a wrong clock of an upstream, or a bad value in the
/// store.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// How long a process keeps a pause from the store before it asks again. So a process notices after a second that a
/// pause was ended by hand, as it does for a denial that a `RedisStore` remembers. While callers wait, a long pause
/// costs one call a second.
const BELIEVED: Duration = Duration::from_secs(1);

/// The pause of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyPause {
    /// When the pause ends for which an upstream has asked this process. No store knows better.
    own: Option<Instant>,
    /// What the store has said of the pause of all processes, which the callers heed that share pauses.
    fleet: Option<FleetPause>,
}

#[derive(Clone, Copy, Debug)]
struct FleetPause {
    end: Instant,
    /// When the store is asked again.
    again: Instant,
}

impl KeyPause {
    /// Adds a pause of this process. A longer one that holds already stays.
    pub(super) fn extend(&mut self, end: Instant) {
        self.own = self.own.max(Some(end));
    }

    /// Remembers the answer of the store to a check that was sent at `sent`: for how long the fleet is still paused,
    /// zero if it is not. `None` if the store has not answered: then the pause is as it was.
    pub(super) fn learn(&mut self, answer: Option<Duration>, sent: Instant) {
        let end = match answer {
            Some(Duration::ZERO) => None,
            Some(pause) => Some(after(sent, pause.min(LONGEST_PAUSE))),
            None => self.fleet.map(|fleet| fleet.end),
        };
        self.fleet = end.map(|end| FleetPause { end, again: after(sent, BELIEVED) });
    }

    /// Takes over what another queue of the key has learned of the fleet.
    pub(super) fn follow(&mut self, other: Self) {
        self.fleet = other.fleet;
    }

    pub(super) fn has_fleet(self) -> bool {
        self.fleet.is_some()
    }

    /// When the pause ends, for callers that share pauses or not; `None` if they are not paused.
    pub(super) fn end(self, shares: bool, now: Instant) -> Option<Instant> {
        let fleet = self.fleet.filter(|_| shares).map(|fleet| fleet.end);
        self.own.max(fleet).filter(|end| *end > now)
    }

    /// The time before which no call is made for certain.
    pub(super) fn certain_end(self, shares: bool, now: Instant) -> Option<Instant> {
        let fleet = self.fleet.filter(|fleet| shares && fleet.again > now).map(|fleet| fleet.end);
        self.own.max(fleet)
    }

    /// When the store may be asked.
    pub(super) fn ask_at(self, shares: bool) -> Option<Instant> {
        let fleet = self.fleet.filter(|_| shares).map(|fleet| fleet.end.min(fleet.again));
        self.own.max(fleet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pause_of_the_fleet_is_certain_for_a_second_after_a_check_that_told_of_it() {
        let now = Instant::now();
        let mut pause = KeyPause::default();
        pause.learn(Some(5 * SECOND), now);
        assert_eq!([true, false].map(|shares| pause.end(shares, now)), [Some(now + 5 * SECOND), None]);
        assert_eq!([true, false].map(|shares| pause.certain_end(shares, now)), [Some(now + 5 * SECOND), None]);
        assert_eq!(pause.certain_end(true, now + SECOND), None);
        assert_eq!((pause.ask_at(true), pause.ask_at(false)), (Some(now + SECOND), None));
        assert_eq!(pause.end(true, now + 5 * SECOND), None, "it is over");
        // A check that gets no answer does not end it.
        pause.learn(None, now + SECOND);
        assert_eq!(pause.certain_end(true, now + SECOND), Some(now + 5 * SECOND));
        pause.learn(Some(2 * LONGEST_PAUSE), now);
        assert_eq!(pause.end(true, now), Some(now + LONGEST_PAUSE));
        pause.extend(now + 2 * SECOND);
        pause.extend(now + SECOND);
        pause.learn(Some(Duration::ZERO), now);
        assert_eq!([true, false].map(|shares| pause.end(shares, now)), [Some(now + 2 * SECOND); 2]);
    }
}
