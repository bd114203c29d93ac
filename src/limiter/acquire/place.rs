//! The place of a caller in a queue.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use crate::{
    limiter::{
        acquire::{
            dispatcher,
            queue_id::QueueId,
            queues::Joined,
            waiter::{Outcome, Reply, Waiter},
        },
        core::Core,
    },
    runtime::deadline::within,
    store::no_answer,
};

/// The place of a caller in the queue of its key. Dropping it makes room for the next.
pub(super) struct Place {
    pub(super) core: Arc<Core>,
    pub(super) id: QueueId,
    pub(super) cost: u32,
    pub(super) shares_pauses: bool,
    pub(super) deadline: Instant,
    /// `None` before the caller has joined.
    pub(super) ticket: Option<u64>,
    /// Whether the dispatcher runs on another runtime, which may not run.
    pub(super) watches: bool,
}

/// How long a waiter may still be charged after its time is over: long enough for a check that is about to be sent.
const LINGER: Duration = Duration::from_millis(50);
/// The time between two looks at a dispatcher on another runtime.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

impl Place {
    /// Waits for the outcome.
    pub(super) async fn wait(mut self) -> Outcome {
        loop {
            let outcome = match self.join() {
                Ok(outcome) => outcome,
                Err(refused) => return refused.outcome,
            };
            // The dispatcher has ended without an outcome if the channel is closed.
            match self.outcome_in_time(outcome).await {
                Some(outcome) => return outcome,
                None => continue,
            }
        }
    }

    async fn outcome_in_time(&self, mut outcome: oneshot::Receiver<Outcome>) -> Option<Outcome> {
        let (queues, ticket) = (&self.core.queues, self.ticket?);
        if let Some(received) = self.receive_until(self.deadline, &mut outcome).await {
            return received;
        }
        if let Some(reply) = queues.give_up(&self.id, ticket) {
            return Some(reply.outcome);
        }
        // The next check may charge for this waiter.
        if let Some(received) = self.receive_until(Instant::now() + LINGER, &mut outcome).await {
            return received;
        }
        if let Some(reply) = queues.expire(&self.id, ticket) {
            return Some(reply.outcome);
        }
        // A check is on its way. Its verdict comes within the store's deadline, if its runtime runs.
        let time = self.core.store.deadline();
        if let Some(received) = within(time.saturating_add(LINGER), &mut outcome).await {
            return received.ok();
        }
        // What the check charges belongs to this caller, whose failure policy may let it pass. While the channel is
        // open, the charge goes to no other waiter.
        tokio::spawn(outcome);
        Some(Err(no_answer(time).charge_unknown()))
    }

    /// The outcome, or `None` at `end`. The outcome is `None` if the dispatcher has ended.
    async fn receive_until(&self, end: Instant, outcome: &mut oneshot::Receiver<Outcome>) -> Option<Option<Outcome>> {
        loop {
            let now = Instant::now();
            let until = if self.watches { end.min(now + WATCH_INTERVAL) } else { end };
            match timeout_at(until, &mut *outcome).await {
                Ok(received) => return Some(received.ok()),
                Err(_) if until == end => return None,
                Err(_) => {
                    if let Some(number) = self.core.queues.take_over(&self.id, self.core.store.deadline()) {
                        dispatcher::start(&self.core, self.id.clone(), number);
                    }
                }
            }
        }
    }

    fn join(&mut self) -> Result<oneshot::Receiver<Outcome>, Box<Reply>> {
        let (reply, outcome) = oneshot::channel();
        let waiter = Waiter {
            policy: self.id.policy.clone(),
            cost: self.cost,
            shares_pauses: self.shares_pauses,
            deadline: self.deadline,
            reply,
        };
        match self.core.queues.join(&self.id, self.ticket, waiter) {
            Joined::Refused(refused) => Err(refused),
            Joined::Waiting { ticket, start, is_elsewhere } => {
                (self.ticket, self.watches) = (Some(ticket), is_elsewhere);
                if let Some(number) = start {
                    dispatcher::start(&self.core, self.id.clone(), number);
                }
                Ok(outcome)
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.core.queues.leave(&self.id, ticket);
        }
    }
}
