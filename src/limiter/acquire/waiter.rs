//! A waiter: one caller in the queue of a key, and its further limits: what it charges beside the policy of its queue.

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use crate::{
    check::{Charge, Check},
    decision::Decision,
    error::Error,
    key::Key,
    limiter::hold::{Hold, HoldAnswer},
    policy::Policy,
};

/// The decision on a waiter, or why there is none.
pub(super) type Outcome = Result<Decision, Error>;

/// What a waiter gets. Not exported.
#[derive(Debug)]
pub struct Delivery {
    pub(super) outcome: Outcome,
    /// What was made for a waiter that asks for a hold.
    pub(super) hold: Option<Box<Hold>>,
}

impl Delivery {
    /// A delivery without a hold.
    pub(super) fn of(outcome: Outcome) -> Self {
        Self { outcome, hold: None }
    }

    /// The answer to a hold.
    pub(super) fn of_held(held: Result<HoldAnswer, Error>) -> Self {
        match held {
            Ok(HoldAnswer::Open(hold)) => Self { outcome: Ok(hold.decision().clone()), hold: Some(Box::new(hold)) },
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
    /// Sends the outcome. Returns the units that were charged for a waiter that is gone.
    pub(super) fn send(self) -> u64 {
        let Waiter { cost, hold, reply, .. } = self.waiter;
        let delivery = Delivery { outcome: self.outcome, hold };
        reply.send(delivery).map_or_else(|delivery| delivery.take_back(cost), |()| 0)
    }
}

/// What is charged together with the first charge of a caller, or not at all.
#[derive(Clone, Debug, Default)]
pub(super) struct Further(Option<Arc<[Charge]>>);

/// The units of each further limit that were left after the last check.
#[derive(Clone, Debug, Default)]
pub(super) struct Room(Vec<(Key, Policy, u64)>);

impl Further {
    pub(super) fn new(charges: impl Iterator<Item = Charge>) -> Self {
        let mut charges = charges.peekable();
        if charges.peek().is_some() { Self(Some(charges.collect())) } else { Self::default() }
    }

    pub(super) fn add(&mut self, charge: Charge) {
        *self = Self::new(self.charges().iter().cloned().chain([charge]));
    }

    fn charges(&self) -> &[Charge] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(super) fn costs(&self) -> impl Iterator<Item = u64> {
        self.charges().iter().map(|charge| charge.cost)
    }

    pub(super) fn len(&self) -> usize {
        self.charges().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.charges().is_empty()
    }

    /// Whether no wait makes the costs fit.
    pub(super) fn never_fit(&self) -> bool {
        self.charges().iter().any(never_fits)
    }

    pub(super) fn add_to(&self, check: Check) -> Check {
        let charges = self.charges().iter();
        charges.fold(check, |check, charge| check.and(charge.key.clone(), &charge.policy, charge.cost))
    }

    /// Whether both are charged to the same counts.
    pub(super) fn counts_with(&self, other: &Self) -> bool {
        let (charges, others) = (self.charges().iter(), other.charges().iter());
        let counts_with = |(one, other): (&Charge, &Charge)| one.key == other.key && one.policy == other.policy;
        self.len() == other.len() && charges.zip(others).all(counts_with)
    }

    /// The costs of both, which are charged to the same counts.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let both = self.charges().iter().zip(other.costs());
        Self::new(both.map(|(charge, more)| Charge { cost: charge.cost.saturating_add(more), ..charge.clone() }))
    }
}

/// Whether no wait makes a charge fit. A shadow policy denies nothing.
pub(super) fn never_fits(Charge { policy, cost, .. }: &Charge) -> bool {
    !policy.is_shadow() && (*cost > policy.capacity() || policy.is_blocked())
}

impl Room {
    /// What a decision on a check with these further charges has left.
    pub(super) fn after(decision: &Decision, further: &Further) -> Self {
        let standings = decision.policies().iter().skip(1).zip(further.charges());
        Self(standings.map(|(of, charge)| (charge.key.clone(), of.policy.clone(), of.available)).collect())
    }

    /// Whether the costs are known to fit.
    pub(super) fn holds(&self, further: &Further) -> bool {
        let fits = |charge: &Charge| {
            let is_of = |key: &Key, policy: &Policy| *key == charge.key && *policy == charge.policy;
            self.0.iter().any(|(key, policy, left)| is_of(key, policy) && charge.cost <= *left)
        };
        further.charges().iter().all(fits)
    }
}
