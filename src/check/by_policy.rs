//! Checks that policies decide without the store: one is blocked, or none limits.

use smallvec::SmallVec;

use super::Check;
use crate::verdict::{Outcome, Outcomes, Source, Verdict};

/// A charge under a blocked policy fits never, and one that nothing has judged has nothing available.
const BLOCKED: Outcome =
    Outcome { fits: false, available: 0, retry_after_us: None, next_us: 0, reset_us: 0, ban_us: 0 };
const UNJUDGED: Outcome = Outcome { fits: true, ..BLOCKED };

impl Check {
    /// Whether the store does not get the whole check: a policy is blocked, or there is no charge.
    #[cold]
    pub(crate) fn is_decided_by_policy(&self) -> bool {
        self.charges.is_empty() || self.charges.iter().any(|charge| charge.policy.is_blocked())
    }

    /// The charges that have to be judged beside those under blocked policies; `None` if a blocked policy is enforced,
    /// so that the check is denied whatever they are.
    pub(crate) fn beside_blocked(&self) -> Option<Self> {
        let is_refused = self.charges.iter().any(|charge| charge.policy.is_blocked() && !charge.policy.is_shadow());
        let others = || self.charges.iter().filter(|charge| !charge.policy.is_blocked());
        (!is_refused).then(|| Self::of_distinct(others().cloned()))
    }

    /// The verdict of the policies alone.
    pub(crate) fn verdict_of_policies(&self, allowed: bool) -> Verdict {
        let outcome_of = |is_blocked| if is_blocked { BLOCKED } else { UNJUDGED };
        let outcomes = self.charges.iter().map(|charge| outcome_of(charge.policy.is_blocked())).collect();
        Verdict { allowed, source: Source::Policy, time_us: 0, outcomes }
    }

    /// The verdict on the whole check, of that on the charges beside those under blocked policies.
    pub(crate) fn with_blocked(&self, mut beside: Verdict) -> Verdict {
        let mut judged = std::mem::take(&mut beside.outcomes.0).into_iter();
        let mut outcome_of = |is_blocked| if is_blocked { Some(BLOCKED) } else { judged.next() };
        let outcomes: SmallVec<_> =
            self.charges.iter().map_while(|charge| outcome_of(charge.policy.is_blocked())).collect();
        Verdict { outcomes: Outcomes(outcomes), ..beside }
    }
}
