//! Ends of holds that have to be sent again: those that no store has answered, and those of holds that may reach the
//! store later than their end.
//!
//! The end of a hold is idempotent, so it may be sent again although its fate is unknown. It is kept for one
//! time-to-live of its hold: later, the store has ended the hold by itself.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify, time::Instant};

use crate::{
    check::Check,
    error::Error,
    hold::Settlement,
    limiter::{core::Core, hold::change::Ending, hold::sender::Sender},
    observe::HoldEnd,
    store::Answer,
};

/// The ends of holds that are sent in the background.
#[derive(Default)]
pub(in crate::limiter) struct Unanswered {
    /// Whether there are any, so that a limiter without them takes no lock.
    any: AtomicBool,
    queue: Mutex<Queue>,
    /// Wakes a sender that waits until an end is due.
    pub(super) wake: Notify,
}

#[derive(Default)]
struct Queue {
    /// Sent as soon as possible.
    now: VecDeque<Kept>,
    /// Sent again later, in the order of their times.
    later: VecDeque<Kept>,
    /// Whether a task sends them.
    is_sending: bool,
}

/// The end of a hold that is kept.
pub(super) struct Kept {
    pub(super) ending: Ending,
    /// When it is sent next. `None`: as soon as possible.
    due: Option<Instant>,
    until: Instant,
}

/// What the sender does next.
pub(super) enum Next {
    Send(Vec<Kept>),
    Wait(Instant),
    /// Nothing is left.
    Stop,
}

/// Largest number of kept ends, about 2 MB. The oldest is dropped for one more.
const MOST_KEPT: usize = 10_000;
/// Largest number of ends in flight: one batch.
const MOST_IN_FLIGHT: usize = 128;
/// The pause after a batch of which the store has answered none, and before the end of an uncertain hold is sent again.
pub(super) const PAUSE: Duration = Duration::from_millis(250);
/// How long the end of an uncertain hold is sent again after the store's first answer that there is no such hold. TCP
/// sends a lost packet again after 200 ms to 1 s. A hold that takes longer on its way stays until its time-to-live.
const LONGEST_WAY: Duration = Duration::from_secs(2);

impl Kept {
    fn new(ending: Ending) -> Self {
        let ttl = ending.hold.policy.holds().map_or(Duration::ZERO, |holds| holds.ttl());
        Self { ending, due: None, until: Instant::now() + ttl }
    }

    /// Notes that the store does not have the hold, or not yet.
    pub(super) fn not_held(&mut self) {
        let now = Instant::now();
        self.due = Some(now + PAUSE);
        self.until = self.until.min(now + LONGEST_WAY);
    }
}

impl Queue {
    /// Adds an end. Returns the one that is dropped for it: one that the store has answered, or else the oldest.
    fn push(&mut self, kept: Kept) -> Option<Kept> {
        match kept.due {
            Some(_) => self.later.push_back(kept),
            None => self.now.push_back(kept),
        }
        let is_full = self.now.len() + self.later.len() > MOST_KEPT;
        is_full.then(|| self.later.pop_front().or_else(|| self.now.pop_front()))?
    }

    /// Moves what is due to the ends that are sent as soon as possible.
    fn move_due(&mut self, now: Instant) {
        while self.next_due().is_some_and(|due| due <= now) {
            self.now.extend(self.later.pop_front());
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.later.front()?.due
    }
}

impl Unanswered {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic under the lock leaves the queue whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a batch. Also returns the ends that have been kept for too long.
    pub(super) fn next(&self) -> (Next, Vec<Ending>) {
        let (mut batch, mut late) = (Vec::new(), Vec::new());
        let mut queue = self.lock();
        let now = Instant::now();
        queue.move_due(now);
        while batch.len() < MOST_IN_FLIGHT {
            match queue.now.pop_front() {
                Some(kept) if kept.until <= now => late.push(kept.ending),
                Some(kept) => batch.push(kept),
                None => break,
            }
        }
        let next = match queue.next_due() {
            _ if !batch.is_empty() => Next::Send(batch),
            Some(due) => Next::Wait(due),
            None => {
                queue.is_sending = false;
                self.any.store(false, Ordering::Release);
                Next::Stop
            }
        };
        (next, late)
    }

    /// Keeps an end. Returns the one that is dropped for it, if there are too many.
    #[must_use]
    pub(super) fn put(&self, kept: Kept) -> Option<Ending> {
        let dropped = {
            let mut queue = self.lock();
            self.any.store(true, Ordering::Release);
            queue.push(kept)
        };
        self.wake.notify_one();
        dropped.map(|kept| kept.ending)
    }

    /// Notes that the sender has ended before the queue was empty.
    pub(super) fn sender_ended(&self) {
        self.lock().is_sending = false;
    }
}

impl Core {
    /// Ends a hold without a caller that waits: at once if the store answers at once, otherwise in the background.
    ///
    /// Destructors call this, also while a request unwinds. So a panic of the store is contained, and the end is sent
    /// again in the background.
    pub(super) fn end_hold_in_background(self: &Arc<Self>, ending: Ending, runtime: Option<&Handle>) {
        let change = || self.store.change_hold(&ending.hold, ending.change());
        match catch_unwind(AssertUnwindSafe(change)) {
            Ok(Answer::Ready(answer)) => self.on_end_answer(ending, &answer, runtime),
            Ok(Answer::Pending(_)) | Err(_) => self.keep(Kept::new(ending), runtime),
        }
    }

    /// Releases the holds of a check without a verdict, in the background: the store may have made them, and no handle
    /// refers to them.
    pub(in crate::limiter) fn release_uncertain(self: &Arc<Self>, check: &Check) {
        for (_, hold, held) in check.holds() {
            self.end_hold_in_background(Ending::release_of_uncertain(hold, held), None);
        }
    }

    /// Notes the answer to the end of a hold, or keeps the end to send it again.
    pub(super) fn on_end_answer(
        self: &Arc<Self>,
        ending: Ending,
        answer: &Result<Settlement, Error>,
        runtime: Option<&Handle>,
    ) {
        if ending.is_ended_by(answer) {
            return self.on_last_answer(&ending, answer);
        }
        let mut kept = Kept::new(ending);
        if answer.is_ok() {
            kept.not_held();
        }
        self.keep(kept, runtime);
    }

    /// Keeps the end of a hold, and sends it in the background. `runtime` is used outside of a runtime.
    fn keep(self: &Arc<Self>, kept: Kept, runtime: Option<&Handle>) {
        if let Some(dropped) = self.unanswered.put(kept) {
            self.report_hold_end(&dropped, HoldEnd::Unanswered);
        }
        self.send_unanswered(runtime);
    }

    /// Starts the task that sends what is kept, if there is anything, no task runs yet, and there is a runtime.
    pub(in crate::limiter) fn send_unanswered(self: &Arc<Self>, runtime: Option<&Handle>) {
        if !self.unanswered.any.load(Ordering::Acquire) {
            return;
        }
        let current = Handle::try_current().ok();
        let Some(runtime) = current.as_ref().or(runtime) else { return };
        if !mem::replace(&mut self.unanswered.lock().is_sending, true) {
            drop(runtime.spawn(Sender::new(Arc::clone(self)).run()));
        }
    }
}
