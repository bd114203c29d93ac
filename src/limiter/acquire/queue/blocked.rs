//! A head that its further limits have denied.

use std::time::Duration;

use tokio::time::Instant;

use crate::limiter::acquire::forecast::{after, is_caused_by_charges};
use crate::policy::Policy;

/// A head that further limits have denied. It keeps those behind it back for as long as it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    /// The ticket of the head.
    pub(super) ticket: u64,
    /// When it may pass.
    pub(super) until: Instant,
    /// The time before which it certainly does not pass.
    pub(super) certain: Option<Instant>,
}

/// The longest time between two checks of a head that waits for holds or for shards of a further limit: nothing wakes
/// the queue when a hold ends under another policy than its own.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Blocked {
    /// The head of this ticket, whose check was sent at `sent`, and denied by limits with these waits. `None` if no
    /// further limit has denied it.
    pub(super) fn by<'a>(
        ticket: u64,
        waits: impl Iterator<Item = (&'a Policy, Duration)>,
        sent: Instant,
    ) -> Option<Self> {
        let by_one = |(policy, wait): (&Policy, Duration)| {
            let certain = is_caused_by_charges(policy, wait).then(|| after(sent, wait));
            let until = certain.unwrap_or_else(|| after(sent, wait.min(LOOK_AGAIN)));
            Self { ticket, until, certain }
        };
        let both = |one: Self, other: Self| {
            let (until, certain) = (one.until.max(other.until), one.certain.max(other.certain));
            Self { ticket, until, certain }
        };
        waits.map(by_one).reduce(both)
    }

    /// When the head asks again. If its wait is not certain, it asks at its `deadline` at the latest.
    pub(super) fn asks_at(self, deadline: Instant) -> Option<Instant> {
        self.certain.max(Some(self.until.min(deadline)))
    }
}
