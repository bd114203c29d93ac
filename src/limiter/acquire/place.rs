//! The place of a caller in a queue.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use crate::limiter::{
    acquire::{
        dispatcher,
        queues::{Joined, QueueId},
        waiter::{Outcome, Reply, Waiter},
    },
    core::Core,
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
}

impl Place {
    /// Waits for the outcome.
    pub(super) async fn wait(mut self) -> Outcome {
        loop {
            let mut outcome = match self.join() {
                Ok(outcome) => outcome,
                Err(refused) => return refused.outcome,
            };
            // The dispatcher has ended without an outcome if the channel is closed.
            match self.outcome_in_time(&mut outcome).await {
                Some(outcome) => return outcome,
                None => continue,
            }
        }
    }

    async fn outcome_in_time(&self, outcome: &mut oneshot::Receiver<Outcome>) -> Option<Outcome> {
        let mut timer = pin!(sleep_until(self.deadline));
        let mut is_late = false;
        poll_fn(|cx| {
            if let Poll::Ready(received) = Pin::new(&mut *outcome).poll(cx) {
                return Poll::Ready(received.ok());
            }
            if !is_late && timer.as_mut().poll(cx).is_ready() {
                is_late = true;
                // Without a reply, the verdict is on its way; the store's deadline bounds the wait for it.
                if let Some(reply) = self.ticket.and_then(|ticket| self.core.queues.give_up(&self.id, ticket)) {
                    return Poll::Ready(Some(reply.outcome));
                }
            }
            Poll::Pending
        })
        .await
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
            Joined::Waiting { ticket, needs_dispatcher } => {
                self.ticket = Some(ticket);
                if needs_dispatcher {
                    dispatcher::start(&self.core, self.id.clone());
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
