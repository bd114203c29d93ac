//! The pause of one key: what this process was asked for, and what the store says of the fleet.

use std::time::Duration;

use tokio::time::Instant;

use super::forecast::after;

/// The longest pause. A field with garbage, the clock of an upstream, or a bad value in the store must not stop a
/// client for longer.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// For how long a pause of the fleet is believed before the store is asked again: a pause that was ended by hand is
/// noticed as soon as the end of a denial that a `RedisStore` remembers, and a long pause costs a process with waiters
/// one call a second.
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
