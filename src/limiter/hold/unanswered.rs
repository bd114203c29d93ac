//! Changes that no store has answered: kept, and sent again in the background.
//!
//! A change is idempotent, so it may be sent again although its fate is unknown. It is kept for one time-to-live of its
//! hold: later, the store has ended the hold by itself.

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use crate::{
    check::Check,
    limiter::{
        core::Core,
        hold::change::{Ending, may_send_again},
    },
    observe::HoldEnd,
    runtime::deadline::Deadline,
    store::Answer,
};

/// The ends of holds that the store has yet to answer.
#[derive(Default)]
pub(in crate::limiter) struct Unanswered {
    /// Whether there are any, so that a limiter without them takes no lock.
    any: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    endings: VecDeque<Kept>,
    /// Whether a task sends them.
    is_sending: bool,
}

struct Kept {
    ending: Ending,
    /// When it is sent next.
    due: Instant,
    until: Instant,
}

/// Largest number of kept changes, about 2 MB. The oldest is dropped for one more.
const MOST_KEPT: usize = 10_000;
/// Largest number of changes in flight: one batch.
const MOST_IN_FLIGHT: usize = 128;
/// The pause after a batch of which the store has answered none, and before an answered change is sent again.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the end of an uncertain hold is sent again after the store's first answer that there is no such hold. A
/// hold that reaches the store later than this has waited longer than TCP takes to send a lost packet again.
const LONGEST_WAY: Duration = Duration::from_secs(2);

impl Kept {
    /// Notes that the store does not have the hold, or not yet.
    fn answered(&mut self, now: Instant) {
        self.due = now + PAUSE;
        self.until = self.until.min(now + LONGEST_WAY);
    }
}

impl Unanswered {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic under the lock leaves the queue whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Ends a hold without a caller that waits: at once if the store answers at once, otherwise in the background.
    pub(super) fn end_hold_in_background(self: &Arc<Self>, ending: Ending, runtime: Option<&Handle>) {
        match self.store.change_hold(&ending.hold, ending.change()) {
            Answer::Ready(Ok(settlement)) if ending.is_ended_by(settlement) => self.on_hold_answer(&ending, settlement),
            Answer::Ready(Ok(_)) => self.keep_answered(ending, runtime),
            Answer::Ready(Err(error)) if !may_send_again(&error) => self.report_hold_end(&ending, HoldEnd::Unanswered),
            Answer::Ready(Err(_)) | Answer::Pending(_) => self.keep_ending(ending, runtime),
        }
    }

    /// Releases the holds of a check without a verdict, in the background. The store may have made them, and nobody has
    /// a handle.
    pub(in crate::limiter) fn release_uncertain(self: &Arc<Self>, check: &Check) {
        for (_, hold, held) in check.holds() {
            self.end_hold_in_background(Ending::release_of_uncertain(hold, held), None);
        }
    }

    /// Keeps the end of a hold, and sends it in the background. `runtime` is used outside of a runtime.
    pub(super) fn keep_ending(self: &Arc<Self>, ending: Ending, runtime: Option<&Handle>) {
        let ttl = ending.hold.policy.holds().map_or(Duration::ZERO, |holds| holds.ttl());
        let now = Instant::now();
        self.keep(Kept { ending, due: now, until: now + ttl }, runtime);
    }

    /// Keeps the end of an uncertain hold that the store does not have, and sends it again later.
    pub(super) fn keep_answered(self: &Arc<Self>, ending: Ending, runtime: Option<&Handle>) {
        let now = Instant::now();
        self.keep(Kept { ending, due: now + PAUSE, until: now + LONGEST_WAY }, runtime);
    }

    fn keep(self: &Arc<Self>, kept: Kept, runtime: Option<&Handle>) {
        let dropped = {
            let mut queue = self.unanswered.lock();
            queue.endings.push_back(kept);
            self.unanswered.any.store(true, Ordering::Release);
            if queue.endings.len() > MOST_KEPT { queue.endings.pop_front() } else { None }
        };
        if let Some(Kept { ending, .. }) = dropped {
            self.report_hold_end(&ending, HoldEnd::Unanswered);
        }
        self.send_unanswered(runtime);
    }

    /// Starts the task that sends what is kept, if there is anything, no task runs yet, and there is a runtime.
    pub(super) fn send_unanswered(self: &Arc<Self>, runtime: Option<&Handle>) {
        if !self.unanswered.any.load(Ordering::Acquire) {
            return;
        }
        let current = Handle::try_current().ok();
        let Some(runtime) = current.as_ref().or(runtime) else { return };
        if !mem::replace(&mut self.unanswered.lock().is_sending, true) {
            drop(runtime.spawn(Sender { core: Arc::clone(self), is_sending: true }.run()));
        }
    }

    /// Takes a batch of what is due, without what has been kept for too long. `None` ends the sending, because nothing
    /// is left.
    fn take_batch(self: &Arc<Self>) -> Option<Vec<InFlight>> {
        let (mut batch, mut late) = (Vec::new(), Vec::new());
        let mut queue = self.unanswered.lock();
        let now = Instant::now();
        for _ in 0..queue.endings.len() {
            match queue.endings.pop_front() {
                Some(kept) if kept.until <= now => late.push(kept.ending),
                Some(kept) if kept.due <= now => batch.push(InFlight { core: Arc::clone(self), kept: Some(kept) }),
                Some(kept) => queue.endings.push_back(kept),
                None => {}
            }
            if batch.len() == MOST_IN_FLIGHT {
                break;
            }
        }
        let is_empty = batch.is_empty() && queue.endings.is_empty();
        if is_empty {
            queue.is_sending = false;
            self.unanswered.any.store(false, Ordering::Release);
        }
        drop(queue);
        late.iter().for_each(|ending| self.report_hold_end(ending, HoldEnd::Unanswered));
        (!is_empty).then_some(batch)
    }
}

/// The task that sends what is kept. If its runtime shuts down, another one may start.
struct Sender {
    core: Arc<Core>,
    /// Whether the queue counts on this task.
    is_sending: bool,
}

impl Sender {
    async fn run(mut self) {
        loop {
            let Some(batch) = self.core.take_batch() else {
                self.is_sending = false;
                return;
            };
            let mut sent = JoinSet::new();
            batch.into_iter().for_each(|ending| drop(sent.spawn(ending.send())));
            let mut is_answered = false;
            while let Some(result) = sent.join_next().await {
                // A panic in the store or in an observer concerns one change only.
                is_answered |= result.unwrap_or(false);
            }
            if !is_answered {
                // Without timers, the next hold of the limiter starts another task.
                let Some(pause) = Deadline::after(PAUSE) else { return };
                let mut pause = Box::pin(pause);
                poll_fn(|cx| pause.as_mut().poll(cx)).await;
            }
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.is_sending {
            self.core.unanswered.lock().is_sending = false;
        }
    }
}

/// A change that is taken out of the queue, and put back if it stays without an answer.
struct InFlight {
    core: Arc<Core>,
    kept: Option<Kept>,
}

impl InFlight {
    /// Sends the change. Returns whether the store has answered.
    async fn send(mut self) -> bool {
        let Some(Kept { ending, .. }) = &self.kept else { return false };
        let result = self.core.change_hold(&ending.hold, ending.change()).await;
        match &result {
            Err(error) if may_send_again(error) => return false,
            Ok(settlement) if !ending.is_ended_by(*settlement) => {
                if let Some(kept) = &mut self.kept {
                    kept.answered(Instant::now());
                }
                return true;
            }
            _ => {}
        }
        if let Some(Kept { ending, .. }) = self.kept.take() {
            match result {
                Ok(settlement) => self.core.on_hold_answer(&ending, settlement),
                Err(_) => self.core.report_hold_end(&ending, HoldEnd::Unanswered),
            }
        }
        true
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if thread::panicking() {
            // The same change would panic again.
            return;
        }
        let mut queue = self.core.unanswered.lock();
        queue.endings.push_back(kept);
        self.core.unanswered.any.store(true, Ordering::Release);
    }
}
