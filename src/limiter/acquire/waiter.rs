//! A waiter: one caller in the queue of a key.

use tokio::{sync::oneshot, time::Instant};

use crate::{decision::Decision, error::Error, policy::Policy};

/// What a waiter gets.
pub(super) type Outcome = Result<Decision, Error>;

/// A caller that waits for its units.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) policy: Policy,
    pub(super) cost: u32,
    /// Whether a pause of the fleet holds this waiter back.
    pub(super) shares_pauses: bool,
    /// When its `max_wait` ends.
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Outcome>,
}

impl Waiter {
    /// Whether one check can charge for both waiters.
    pub(super) fn can_join(&self, head: &Self) -> bool {
        self.shares_pauses == head.shares_pauses && self.policy == head.policy
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
    pub(super) fn send(self) -> u32 {
        let cost = match &self.outcome {
            Ok(decision) if decision.is_allowed() => self.waiter.cost,
            _ => 0,
        };
        if self.waiter.reply.send(self.outcome).is_err() { cost } else { 0 }
    }
}
