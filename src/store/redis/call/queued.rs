//! When a request of a check was queued, and what the traffic of its failure domain has seen since then.

use std::{sync::Arc, time::Duration};

use super::traffic::Traffic;

/// The traffic of a failure domain at the time when a request was queued.
#[derive(Debug)]
pub(super) struct Queued {
    traffic: Arc<Traffic>,
    answers: u64,
    crowds: u64,
    was_crowded: bool,
}

impl Queued {
    /// A request that is queued now.
    pub(super) fn now(traffic: &Arc<Traffic>) -> Self {
        Self {
            answers: traffic.answers(),
            crowds: traffic.crowds(),
            was_crowded: traffic.is_crowded(),
            traffic: Arc::clone(traffic),
        }
    }

    /// The number of the failure domain.
    pub(super) fn domain(&self) -> usize {
        self.traffic.domain()
    }

    /// Whether Redis has answered calls since then.
    pub(super) fn has_seen_answers(&self) -> bool {
        self.traffic.answers() != self.answers
    }

    /// Whether Redis has answered since then, and within `period`, or owes no answer. A Redis that has just fallen
    /// silent is left to the failure policy.
    pub(super) fn sees_answers(&self, period: Duration) -> bool {
        self.traffic.has_answered_within(period) && self.has_seen_answers() || self.traffic.owes_no_answer_for(period)
    }

    /// Whether the traffic has been crowded since then. See [`Traffic::is_crowded`]. The first checks of a flood are
    /// queued before the crowd, and the last ones of them may outlast it.
    pub(super) fn has_seen_crowd(&self) -> bool {
        self.was_crowded || self.traffic.crowds() != self.crowds
    }

    /// For how long calls have waited for a connection between these times.
    pub(super) fn unconnected(&self, from_us: u64, until_us: u64) -> Duration {
        self.traffic.unconnected(from_us, until_us)
    }
}
