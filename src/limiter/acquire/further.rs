//! Further limits of a caller: what it charges beside the policy of its queue.

use std::sync::Arc;

use crate::{check::Check, decision::Decision, key::Key, policy::Policy};

/// Policies and costs that are charged together with the first policy of a caller, or not at all.
#[derive(Clone, Debug, Default)]
pub(super) struct Further(Option<Arc<[(Policy, u64)]>>);

/// The units of each further limit that were left after the last check.
#[derive(Clone, Debug, Default)]
pub(super) struct Room(Vec<(Policy, u64)>);

impl Further {
    pub(super) fn add(&mut self, policy: &Policy, cost: u64) {
        let present = self.limits().iter().cloned();
        self.0 = Some(present.chain([(policy.clone(), cost)]).collect());
    }

    fn limits(&self) -> &[(Policy, u64)] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.limits().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.limits().is_empty()
    }

    /// Whether no wait makes the costs fit.
    pub(super) fn never_fit(&self) -> bool {
        self.limits().iter().any(|(policy, cost)| *cost > policy.capacity())
    }

    pub(super) fn add_to(&self, check: Check, key: &Key) -> Check {
        self.limits().iter().fold(check, |check, (policy, cost)| check.and(key.clone(), policy, *cost))
    }

    /// Whether both are charged under the same policies.
    pub(super) fn counts_with(&self, other: &Self) -> bool {
        let (limits, others) = (self.limits().iter(), other.limits().iter());
        self.len() == other.len() && limits.zip(others).all(|((policy, _), (other, _))| policy == other)
    }

    /// The costs of both, which are charged under the same policies.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let both = self.limits().iter().zip(other.limits());
        let sum = both.map(|((policy, cost), (_, more))| (policy.clone(), cost.saturating_add(*more)));
        if self.is_empty() { Self::default() } else { Self(Some(sum.collect())) }
    }
}

impl Room {
    /// What a decision on a check with these further limits has left.
    pub(super) fn after(decision: &Decision, further: &Further) -> Self {
        let standings = decision.policies().iter().skip(1).take(further.len());
        Self(standings.map(|standing| (standing.policy.clone(), standing.available)).collect())
    }

    /// Whether the costs are known to fit.
    pub(super) fn holds(&self, further: &Further) -> bool {
        let fits = |(policy, cost): &(Policy, u64)| self.0.iter().any(|(of, left)| of == policy && cost <= left);
        further.limits().iter().all(fits)
    }
}
