//! A waiter: one caller in the queue of a key, and its further limits: what it charges beside the policy of its queue.

use std::{iter, sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use crate::limiter::hold::{Hold, HoldAnswer};
use crate::{check::Check, decision::Decision, error::Error, key::Key, policy::Policy};

/// The decision on a waiter, or why there is none.
pub(super) type Outcome = Result<Decision, Error>;

/// What a waiter gets. Not exported.
#[derive(Debug)]
pub struct Delivery {
    pub(super) outcome: Outcome,
    /// What was made for a waiter that asks for a hold.
    pub(super) hold: Option<Box<Hold>>,
    /// When the store charged the units, if it did. A delivery may be read long after that.
    pub(super) charged: Instant,
}

impl Delivery {
    /// A delivery of what has just been decided, without a hold.
    pub(super) fn of(outcome: Outcome) -> Self {
        Self { outcome, hold: None, charged: Instant::now() }
    }

    /// The answer to a hold.
    pub(super) fn of_held(held: Result<HoldAnswer, Error>) -> Self {
        match held {
            Ok(HoldAnswer::Open(hold)) => {
                let decided = Self::of(Ok(hold.decision().clone()));
                Self { hold: Some(Box::new(hold)), ..decided }
            }
            Ok(HoldAnswer::Denied(decision)) => Self::of(Ok(decision)),
            Err(error) => Self::of(Err(error)),
        }
    }

    /// Takes the delivery back, because its waiter is gone: releases the hold, or returns the units that were charged.
    pub(super) fn take_back(self, cost: u64) -> u64 {
        match (self.hold, self.outcome) {
            (Some(hold), _) => {
                // A settlement that is dropped is sent in the background.
                drop(hold.release());
                0
            }
            (None, Ok(decision)) if decision.is_allowed() => cost,
            (None, _) => 0,
        }
    }
}

/// A caller that waits for its units.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) policy: Policy,
    pub(super) cost: u64,
    pub(super) further: Further,
    /// Whether a pause of the fleet holds this waiter back.
    pub(super) shares_pauses: bool,
    /// Whether it asks again if the store fails.
    pub(super) asks_again: bool,
    /// When its `max_wait` ends.
    pub(super) deadline: Instant,
    /// By how much it may be late once it has a place.
    pub(super) grace: Duration,
    /// Whether the waiter asks for a hold.
    pub(super) holds: bool,
    /// The hold that was made for the waiter.
    pub(super) hold: Option<Box<Hold>>,
    pub(super) reply: oneshot::Sender<Delivery>,
}

impl Waiter {
    /// The limit that a denial of the waiter names: the first one that can delay it.
    pub(super) fn delayed_by(&self) -> (&Policy, u64) {
        let first = (&self.policy, self.cost);
        if self.policy.delays(self.cost) { first } else { self.further.delaying().unwrap_or(first) }
    }

    /// All limits of the waiter with their costs, the first one first.
    pub(super) fn limits(&self) -> impl Iterator<Item = (&Policy, u64)> {
        let further = self.further.limits().iter().map(|(policy, cost)| (policy, *cost));
        iter::once((&self.policy, self.cost)).chain(further)
    }

    /// Whether a denial of the waiter counts.
    pub(super) fn counts_denials(&self) -> bool {
        self.limits().any(|(policy, _)| policy.counts_denials())
    }

    /// The units that those behind it wait for. A cost above the largest limit never passes, so its number does not
    /// matter, and sums do not overflow.
    pub(super) fn units(&self) -> u64 {
        self.cost.min(Policy::MAX_LIMIT + 1)
    }

    /// Whether one check can charge for both waiters. Each hold has a handle of its own, and so a check of its own.
    pub(super) fn can_join(&self, head: &Self) -> bool {
        !self.holds
            && !head.holds
            && self.shares_pauses == head.shares_pauses
            && self.policy == head.policy
            && self.further.counts_with(&head.further)
    }
}

/// An outcome on its way to its waiter. It is sent after the lock of the queues is released, because it wakes a task.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) waiter: Waiter,
    pub(super) outcome: Outcome,
}

impl Reply {
    /// Sends the outcome, whose units were charged at `charged`. Returns those of a waiter that is gone.
    pub(super) fn send(self, charged: Instant) -> u64 {
        let Waiter { cost, hold, reply, .. } = self.waiter;
        let delivery = Delivery { outcome: self.outcome, hold, charged };
        reply.send(delivery).map_or_else(|delivery| delivery.take_back(cost), |()| 0)
    }
}

/// Whether no wait makes a cost fit.
pub(super) fn never_fits(policy: &Policy, cost: u64) -> bool {
    !policy.is_shadow() && (cost > policy.capacity() || policy.is_blocked())
}

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
        self.limits().iter().any(|(policy, cost)| never_fits(policy, *cost))
    }

    /// The first limit that can delay a caller.
    pub(super) fn delaying(&self) -> Option<(&Policy, u64)> {
        self.limits().iter().map(|(policy, cost)| (policy, *cost)).find(|(policy, cost)| policy.delays(*cost))
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Limiter, MemoryStore};

    /// A caller that waits until `deadline`, and does not leave.
    pub(in crate::limiter::acquire) fn waiter(policy: &Policy, cost: u64, deadline: Instant) -> Waiter {
        let (reply, delivery) = oneshot::channel();
        std::mem::forget(delivery);
        Waiter {
            policy: policy.clone(),
            cost,
            further: Further::default(),
            shares_pauses: false,
            asks_again: true,
            deadline,
            grace: Duration::ZERO,
            holds: false,
            hold: None,
            reply,
        }
    }

    fn policy(name: &str) -> Policy {
        Policy::per_minute(name, 5).unwrap()
    }

    fn further(policy: &Policy, cost: u64) -> Further {
        let mut further = Further::default();
        further.add(policy, cost);
        further
    }

    #[test]
    fn one_check_charges_for_waiters_that_differ_in_their_costs_alone() {
        let plain = || waiter(&policy("p"), 1, Instant::now());
        assert!(plain().can_join(&Waiter { cost: 2, ..plain() }));
        let changes: [fn(&mut Waiter); 4] = [
            |waiter| waiter.holds = true,
            |waiter| waiter.shares_pauses = true,
            |waiter| waiter.policy = policy("q"),
            |waiter| waiter.further.add(&policy("q"), 1),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = plain();
            change(&mut other);
            assert!(!other.can_join(&plain()) && !plain().can_join(&other), "change {number}");
        }
        let (q, r) = (policy("q"), policy("r"));
        assert!(further(&q, 1).counts_with(&further(&q, 2)) && !further(&q, 1).counts_with(&further(&r, 1)));
    }

    #[test]
    fn further_costs_never_fit_above_an_enforced_capacity_and_fit_as_far_as_there_is_room() {
        let (q, blocked) = (policy("q"), Policy::blocked("q").unwrap());
        let shadow = q.clone().with_shadow(true);
        for (policy, cost, never_fits) in [(&q, 5, false), (&q, 6, true), (&blocked, 1, true), (&shadow, 6, false)] {
            assert_eq!(further(policy, cost).never_fit(), never_fits, "{policy:?} {cost}");
        }
        let check = Check::new("k", &policy("p"), 1).and("k", &q, 1);
        let decision = Limiter::new(MemoryStore::new()).try_check_all(check).unwrap();
        let room = Room::after(&decision, &further(&q, 1));
        let fits = [(&q, 4), (&q, 5), (&policy("r"), 1)].map(|(policy, cost)| room.holds(&further(policy, cost)));
        assert_eq!(fits, [true, false, false]);
    }

    #[test]
    fn what_was_charged_for_a_caller_that_has_left_is_left_over_and_a_denial_leaves_nothing() {
        let limiter = Limiter::new(MemoryStore::new());
        let [charged, denied] = [3, 4].map(|cost| Delivery::of(limiter.try_check("k", &policy("p"), cost)));
        assert_eq!((charged.take_back(3), denied.take_back(4)), (3, 0));
    }
}
