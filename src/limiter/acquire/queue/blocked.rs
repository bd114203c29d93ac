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
    /// Whether a denial counts, so that the head must not ask before it may pass.
    counts: bool,
}

/// The longest time between two checks of a head that waits for holds or for shards of a further limit: nothing wakes
/// the queue when a hold ends under another policy than its own.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Blocked {
    /// The head of this ticket, whose check was denied by limits with these waits from `start` on. `counts`: whether a
    /// policy of the check counts denials. `None` if no further limit has denied it.
    pub(super) fn by<'a>(
        ticket: u64,
        waits: impl Iterator<Item = (&'a Policy, Duration)>,
        start: Instant,
        counts: bool,
    ) -> Option<Self> {
        let by_one = |(policy, wait): (&Policy, Duration)| {
            let certain = is_caused_by_charges(policy, wait).then(|| after(start, wait));
            let soonest = if counts { wait } else { wait.min(LOOK_AGAIN) };
            let until = certain.unwrap_or_else(|| after(start, soonest));
            Self { ticket, until, certain, counts }
        };
        let both = |one: Self, other: Self| {
            let (until, certain) = (one.until.max(other.until), one.certain.max(other.certain));
            Self { until, certain, ..one }
        };
        waits.map(by_one).reduce(both)
    }

    /// When the head asks again. If its wait is not certain, and a denial does not count, it asks at its `deadline` at
    /// the latest.
    pub(super) fn asks_at(self, deadline: Instant) -> Option<Instant> {
        let latest = if self.counts { self.until } else { self.until.min(deadline) };
        self.certain.max(Some(latest))
    }
}
