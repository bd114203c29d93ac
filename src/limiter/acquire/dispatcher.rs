//! The dispatcher of a queue: it asks the store for the head.
//!
//! It is a task of its own where anybody waits, because the future of the head may not be polled for a while, or may be
//! dropped, and the others would wait for it. A caller that is alone polls the dispatcher itself until then.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use tokio::time::Instant;

use crate::{
    check::Check,
    decision::Decision,
    error::{Error, ErrorKind},
    limiter::{
        acquire::{
            pause,
            queue::{Group, Step},
            queue_id::QueueId,
            waiter::{Delivery, Reply},
        },
        core::Core,
    },
    runtime::precise_sleep,
};

/// A dispatcher at work. If it ends early, because its runtime shuts down or an observer panics, the waiters join
/// again and start another dispatcher.
struct Dispatcher {
    core: Arc<Core>,
    id: QueueId,
    /// See [`Queues::take_over`](super::queues::Queues::take_over).
    number: u64,
    /// The group whose check is on its way.
    in_flight: Option<Group>,
    is_done: bool,
}

/// The work of a dispatcher of a queue.
pub(super) fn dispatch(core: &Arc<Core>, id: QueueId, number: u64) -> impl Future<Output = ()> + Send + use<> {
    Dispatcher { core: Arc::clone(core), id, number, in_flight: None, is_done: false }.run()
}

impl Dispatcher {
    async fn run(mut self) {
        loop {
            let (step, changed) = self.core.queues.step(&self.id, self.number);
            match step {
                Step::Done => {
                    self.is_done = true;
                    return;
                }
                Step::Leave(seat) => {
                    seat.leave();
                    tokio::task::yield_now().await;
                }
                Step::Sleep { until, is_precise } => {
                    let mut changed = pin!(changed.notified());
                    let mut due = pin!(async {
                        match is_precise {
                            true => precise_sleep::sleep_until(until).await,
                            false => tokio::time::sleep_until(until).await,
                        }
                    });
                    poll_fn(|cx| match changed.as_mut().poll(cx) {
                        Poll::Ready(()) => Poll::Ready(()),
                        Poll::Pending => due.as_mut().poll(cx),
                    })
                    .await;
                }
                Step::Ask(group) => {
                    self.ask(group).await;
                    // The store may have told of a pause of the fleet.
                    self.core.warn_of_full_pauses();
                    // A store that answers at once must not keep the thread from other tasks. Without waiters the task
                    // ends first, because its runtime may not run again soon.
                    if self.core.queues.has_waiters(&self.id) {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// Charges for a group, and replies to its waiters.
    async fn ask(&mut self, group: Group) {
        let Some((_, head)) = group.waiters.first() else { return };
        let key = self.id.key.clone();
        let check = match head.holds {
            true => Check::hold(key, &head.policy, group.units),
            false => Check::new(key, &head.policy, group.units),
        };
        let check = group.further.add_to(check, &self.id.key);
        let check = if head.shares_pauses { pause::heed(check, &self.id.key, &head.policy) } else { check };
        let holds = head.holds;
        self.in_flight = Some(group);
        let sent = Instant::now();
        let Delivery { outcome, hold } = self.answer(check, holds).await;
        let Some(mut group) = self.in_flight.take() else { return };
        if let Some((_, head)) = group.waiters.first_mut() {
            head.hold = hold;
        }
        let decision = outcome.as_ref().ok().filter(|decision| decision.is_allowed()).cloned();
        let left = deliver(self.core.queues.finish(&self.id, self.number, group, outcome, sent));
        if let Some(decision) = decision {
            hand_on(&self.core, &self.id, left, &decision);
        }
    }

    async fn answer(&self, check: Check, holds: bool) -> Delivery {
        match holds {
            true => Delivery::of_held(self.core.ask_for_hold(check, self.id.purpose).await),
            false => Delivery::of(self.core.ask(check, self.id.purpose).await),
        }
    }
}

/// Gives units that were charged for callers that are gone to the next waiters.
pub(super) fn hand_on(core: &Core, id: &QueueId, mut units: u64, decision: &Decision) {
    while units > 0 {
        let heirs = core.queues.inherit(id, &mut units, decision);
        if heirs.is_empty() {
            return;
        }
        units = units.saturating_add(deliver(heirs));
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let message = "the task that sent the check has ended";
        let error = Error::new(ErrorKind::Unavailable, message).charge_unknown();
        if let Some(group) = self.in_flight.take() {
            for (_, waiter) in group.waiters {
                Reply { waiter, outcome: Err(error.clone()) }.send();
            }
        }
        self.core.queues.disband(&self.id, self.number);
    }
}

/// Sends the replies. Returns the units that were charged for waiters that are gone.
fn deliver(replies: Vec<Reply>) -> u64 {
    replies.into_iter().map(Reply::send).fold(0, u64::saturating_add)
}
