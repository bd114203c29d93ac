//! The place of a caller in a queue.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};
use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, ErrorKind};
use crate::limiter::acquire::dispatcher::{dispatch, hand_on};
use crate::limiter::acquire::seat::{Dispatching, InOutage, QueueId, Seat};
use crate::limiter::acquire::waiter::{Delivery, Further, Reply, Waiter};
use crate::limiter::acquire::{forecast::after, queues::Joined};
use crate::limiter::core::Core;
use crate::runtime::{deadline::within, workers::takes_tasks};
use crate::store::no_answer;

/// The place of a caller in the queue of its key. Dropping it makes room for the next.
pub(super) struct Place {
    pub(super) core: Arc<Core>,
    pub(super) id: QueueId,
    pub(super) cost: u64,
    pub(super) further: Further,
    pub(super) shares_pauses: bool,
    /// Whether the caller asks for a hold.
    pub(super) holds: bool,
    pub(super) deadline: Instant,
    /// By how much the caller may be late that has a place: those ahead of it may be served a little late.
    pub(super) grace: Duration,
    /// `None` before the caller has joined.
    pub(super) ticket: Option<u64>,
    /// Whether the dispatcher runs on another runtime, which may not run.
    pub(super) watches: bool,
    /// Where this caller polls the dispatcher, if it does.
    pub(super) seat: Option<Arc<Seat>>,
    /// What the caller waits for, until it has received it.
    pub(super) delivery: Option<oneshot::Receiver<Delivery>>,
}

/// How long a waiter may still be charged after its time is over: long enough for a check that is about to be sent.
const LINGER: Duration = Duration::from_millis(50);
/// The time between two looks at a dispatcher on another runtime.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

impl Place {
    /// Waits for the outcome.
    pub(super) async fn wait(mut self) -> Delivery {
        loop {
            if let Err(refused) = self.join() {
                return Delivery::of(refused.outcome);
            }
            // A runtime that shuts down ends its dispatchers, and each one that is started on it.
            if self.watches && !takes_tasks() {
                return Delivery::of(Err(shutting_down()));
            }
            match self.delivery_in_time().await {
                Some(delivery) => return delivery,
                None if !takes_tasks() => return Delivery::of(Err(shutting_down())),
                None => {}
            }
        }
    }

    /// What the caller gets, or `None` if the dispatcher has ended without a reply.
    async fn delivery_in_time(&mut self) -> Option<Delivery> {
        let ticket = self.ticket?;
        if let Some(received) = self.receive_until(after(self.deadline, self.grace)).await {
            return received;
        }
        if let Some(reply) = self.core.queues.give_up(&self.id, ticket) {
            return Some(Delivery::of(reply.outcome));
        }
        // The next check may charge for this waiter.
        if let Some(received) = self.receive_until(Instant::now() + LINGER).await {
            return received;
        }
        if let Some(reply) = self.core.queues.expire(&self.id, ticket) {
            return Some(Delivery::of(reply.outcome));
        }
        // A check is on its way. Its verdict comes within the store's deadline, if its runtime runs.
        let time = self.core.calls.store.deadline();
        if let Some(received) = within(time.saturating_add(LINGER), self.received()).await {
            return received;
        }
        // What the check charges belongs to this caller, whose failure policy may let it pass. While the channel is
        // open, the charge goes to no other waiter.
        tokio::spawn(self.delivery.take()?);
        Some(Delivery::of(Err(no_answer(time).charge_unknown())))
    }

    /// The delivery, or `None` at `end`. The delivery is `None` if the dispatcher has ended.
    async fn receive_until(&mut self, end: Instant) -> Option<Option<Delivery>> {
        loop {
            let now = Instant::now();
            let until = if self.watches { end.min(now + WATCH_INTERVAL) } else { end };
            match timeout_at(until, self.received()).await {
                Ok(received) => return Some(received),
                Err(_) if until == end => return None,
                Err(_) => {
                    if let Some(number) = self.core.queues.take_over(&self.id, self.core.calls.store.deadline()) {
                        tokio::spawn(dispatch(&self.core, self.id.clone(), number));
                    }
                }
            }
        }
    }

    /// The delivery, or `None` if the dispatcher has ended without one.
    fn received(&mut self) -> impl Future<Output = Option<Delivery>> + Send {
        poll_fn(|cx| self.poll_received(cx))
    }

    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        // The dispatcher first, because it may deliver.
        self.seat = self.seat.take().filter(|seat| seat.poll(cx));
        let Some(delivery) = &mut self.delivery else { return Poll::Ready(None) };
        Pin::new(delivery).poll(cx).map(|received| {
            self.delivery = None;
            received.ok()
        })
    }

    fn join(&mut self) -> Result<(), Box<Reply>> {
        let (reply, delivery) = oneshot::channel();
        let waiter = Waiter {
            policy: self.id.policy.clone(),
            cost: self.cost,
            further: self.further.clone(),
            shares_pauses: self.shares_pauses,
            asks_again: !matches!(self.id.in_outage, InOutage::Fail { .. }),
            deadline: self.deadline,
            grace: self.grace,
            holds: self.holds,
            hold: None,
            reply,
        };
        match self.core.queues.join(&self.id, self.ticket, waiter) {
            Joined::Refused(refused) => Err(refused),
            Joined::Waiting { ticket, dispatcher, is_elsewhere } => {
                (self.ticket, self.watches, self.delivery) = (Some(ticket), is_elsewhere, Some(delivery));
                match dispatcher {
                    Dispatching::Start(number, seat) => {
                        let work = Box::pin(dispatch(&self.core, self.id.clone(), number));
                        self.seat = seat.seat(work).then_some(seat);
                    }
                    Dispatching::Others(Some(seat)) => seat.leave(),
                    Dispatching::Others(None) => {}
                }
                Ok(())
            }
        }
    }
}

/// The error of a caller whose runtime starts no task that could send its check.
fn shutting_down() -> Error {
    Error::new(ErrorKind::Unavailable, "the check was not sent, because the runtime is shutting down")
}

impl Drop for Place {
    fn drop(&mut self) {
        // Closed first: a check on its way that is denied must not bring back a waiter that has left.
        if let Some(delivery) = &mut self.delivery {
            delivery.close();
        }
        if let Some(ticket) = self.ticket {
            self.core.queues.leave(&self.id, ticket);
        }
        // A check may be on its way.
        if let Some(seat) = self.seat.take() {
            seat.leave();
        }
        // A reply may have arrived that the caller has not received.
        let Some(mut delivery) = self.delivery.take() else { return };
        if let Ok(delivery) = delivery.try_recv()
            && let Ok(decision) = delivery.outcome.clone()
        {
            let charged = delivery.charged;
            hand_on(&self.core, &self.id, delivery.take_back(self.cost), &decision, charged);
        }
    }
}
