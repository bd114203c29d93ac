//! Decisions on what charges nothing, on charges of as much as fits, and of queues.

use std::{slice, sync::Arc};

use super::{Decision, PolicyDecision, PolicyDecisions};
use crate::key::Key;

impl Decision {
    /// Turns the decision on a check of cost 0 into the decision on a peek: whether a cost of 1 would pass.
    #[cold]
    #[inline(never)]
    pub(crate) fn answer_peek(&mut self) {
        let policies = self.policies_mut();
        for policy in &mut *policies {
            let is_spent = policy.available == 0;
            policy.would_deny = is_spent && policy.is_shadow();
            policy.violated = is_spent && !policy.would_deny;
            policy.retry_after = (is_spent && !policy.policy.is_blocked()).then_some(policy.next);
        }
        self.allowed = policies.iter().all(|policy| !policy.violated);
    }

    fn policies_mut(&mut self) -> &mut [PolicyDecision] {
        match &mut self.policies {
            PolicyDecisions::None => &mut [],
            PolicyDecisions::One(policy) => slice::from_mut(policy),
            PolicyDecisions::Several(policies) => Arc::make_mut(policies),
        }
    }

    /// The decision with the partition key of `key`. A queue makes decisions without one.
    pub(crate) fn about(mut self, key: &Key) -> Self {
        for policy in self.policies_mut() {
            policy.partition_key = policy.policy.partition_key(key);
        }
        self
    }

    /// The decision on a charge of as much as fits, where nothing does.
    pub(crate) fn without_cost(mut self) -> Self {
        self.policies_mut().iter_mut().for_each(|policy| policy.cost = 0);
        self
    }
}
