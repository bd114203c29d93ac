//! Sends the ends of holds: each in a task of its own, so that as many as needed are in flight and share calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, atomic::Ordering};
use std::task::{Context, Poll, Waker};
use std::{future::poll_fn, time::Duration};

use tokio::{runtime::Handle, time::Instant};

use crate::clock::{Clock, SystemClock};
use crate::limiter::hold::domain::{Kept, Sent};
use crate::limiter::hold::{age::Ending, change::Change, ends::SharedHolds, renewing::HoldJob};
use crate::observe::{Event, HoldEnd, Warning};
use crate::{check::Check, error::Error, hold::SettleAnswer, runtime::deadline::within, store::Answer};

/// Time beyond two deadlines after which an end without an answer is sent from another runtime: the one that has sent
/// it has ended or stands still.
const STUCK: Duration = Duration::from_millis(250);
/// The longest time that [`Limiter::close`](crate::Limiter::close) waits for a store that answers.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);
/// The most ends that are sent at once, before the check of their caller goes on.
const MOST_AT_ONCE: usize = 64;
/// Time between two notices of ends that were given up, in microseconds.
const NOTICE_US: u64 = 60_000_000;
/// A longer deadline does not keep another runtime from sending an end again.
const LONGEST_DEADLINE: Duration = Duration::from_secs(3_600);

/// The task of an end.
struct Sending {
    shared: Arc<SharedHolds>,
    domain: usize,
    number: u64,
    attempt: u32,
    /// Whether the store may have got the change.
    is_sent: bool,
    /// Whether the store is being asked. Still set when this is dropped if the store has panicked.
    is_asking: bool,
    is_done: bool,
}

impl Sending {
    async fn run(mut self, ending: Arc<Ending>, mut call: Change) {
        self.is_sent = true;
        let answer = poll_fn(|cx| {
            self.is_asking = true;
            let answer = call.poll(&self.shared.calls, &ending.hold, ending.change(), cx);
            self.is_asking = false;
            answer
        });
        let answer = answer.await;
        self.is_done = true;
        drop(call);
        self.shared.on_background_answer(self.domain, self.number, &answer);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        match self.is_asking {
            // The same change would panic again. A thread that panics for another reason may drop its runtime, and the
            // ends on their way there have to be sent from another one.
            true => self.shared.ends.forget(self.domain, self.number),
            false => self.shared.ends.on_abort(self.domain, self.number, self.attempt, self.is_sent),
        }
    }
}

impl SharedHolds {
    /// Ends a hold without a caller that waits: at once if the store answers at once, otherwise in the background.
    ///
    /// Destructors call this, also while a request unwinds. So a panic of the store is contained, and the end is sent
    /// again in the background. `runtime` is used outside of a runtime.
    pub(super) fn end_hold_in_background(self: &Arc<Self>, ending: Ending, runtime: Option<&Handle>) {
        let change = || self.calls.store.change_hold(&ending.hold, ending.change());
        match catch_unwind(AssertUnwindSafe(change)) {
            Ok(Answer::Ready(answer)) => self.on_end_answer(ending, &answer),
            Ok(Answer::Pending(pending)) => self.send_in_background(ending, Change::of(pending), false, runtime),
            // The store may have settled the hold before it panicked.
            Err(_) => self.send_in_background(ending, Change::UNSENT, true, runtime),
        }
    }

    /// Releases the holds of a check without a verdict, in the background: the store may have made them, and no handle
    /// refers to them.
    pub(in crate::limiter) fn release_uncertain(self: &Arc<Self>, check: &Check) {
        for (_, hold, held) in check.holds() {
            self.end_hold_in_background(Ending::release_of_uncertain(hold, held), None);
        }
    }

    /// Sends an end in the background. `call` may be on its way already. `is_sent`: an earlier attempt may have reached
    /// the store.
    pub(super) fn send_in_background(
        self: &Arc<Self>,
        ending: Ending,
        call: Change,
        is_sent: bool,
        runtime: Option<&Handle>,
    ) {
        let domain = self.calls.failure_domain_of(Some(&ending.hold.key));
        self.mirror_release(&ending);
        let mut kept = Kept::new(ending);
        kept.is_sent = is_sent;
        let current = Handle::try_current().ok();
        match current.as_ref().or(runtime) {
            Some(runtime) => {
                if let Some(sent) = self.ends.put_in_flight(domain, kept, runtime.id(), self.stuck()) {
                    self.spawn_end(domain, sent, call, runtime);
                }
            }
            None => {
                self.ends.push(domain, kept);
                self.ends.look_soon();
            }
        }
    }

    /// Returns whether the runtime runs the task, as far as can be seen.
    fn spawn_end(self: &Arc<Self>, domain: usize, sent: Sent, call: Change, runtime: &Handle) -> bool {
        !runtime.spawn(self.sending(domain, sent, call)).is_finished()
    }

    fn sending(self: &Arc<Self>, domain: usize, sent: Sent, call: Change) -> impl Future<Output = ()> + Send + use<> {
        let Sent { number, attempt, ending } = sent;
        // The future of a settlement, dropped, leaves a call that is on its way.
        let is_sent = !call.is_unsent();
        Sending { shared: Arc::clone(self), domain, number, attempt, is_sent, is_asking: false, is_done: false }
            .run(ending, call)
    }

    /// Sends an end now, so that it reaches the store before what the caller sends next. A task waits for the answer.
    fn send_at_once(self: &Arc<Self>, domain: usize, sent: Sent, runtime: &Handle) {
        let mut sending = Box::pin(self.sending(domain, sent, Change::UNSENT));
        let send = || sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(send)) {
            drop(runtime.spawn(sending));
        }
    }

    /// Notes the answer to the end of a hold that its caller has awaited, or keeps the end to send it again.
    pub(super) fn on_end_answer(self: &Arc<Self>, ending: Ending, answer: &Result<SettleAnswer, Error>) {
        if ending.is_ended_by(answer) {
            return self.on_last_answer(&ending, answer, false);
        }
        let domain = self.calls.failure_domain_of(Some(&ending.hold.key));
        self.mirror_release(&ending);
        let answered = self.ends.repeat(domain, Kept::new(ending), answer, self.stuck());
        self.give_up(answered.given_up);
        self.work_at(answered.next);
    }

    fn on_background_answer(self: &Arc<Self>, domain: usize, number: u64, answer: &Result<SettleAnswer, Error>) {
        let answered = self.ends.on_answer(domain, number, answer, self.stuck());
        self.give_up(answered.given_up);
        self.work_at(answered.next);
        if let Some(Kept { ending, is_sent, .. }) = answered.last {
            self.on_last_answer(&ending, answer, is_sent);
        }
        if answered.has_waiting {
            self.send_next(domain);
        }
    }

    /// Sends what waits in a domain.
    fn send_next(self: &Arc<Self>, domain: usize) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut late = Vec::new();
        while let Some(sent) = self.ends.take(domain, runtime.id(), &mut late) {
            if !self.spawn_end(domain, sent, Change::UNSENT, &runtime) {
                break;
            }
        }
        self.give_up(late);
    }

    /// Sends what is due in all domains from the current runtime. Returns when something is due next.
    pub(super) fn look_after_ends(self: &Arc<Self>) -> Option<Instant> {
        let Ok(runtime) = Handle::try_current() else { return None };
        let mut due = self.ends.take_due(runtime.id(), self.stuck());
        let others = due.sent.split_off(due.sent.len().min(MOST_AT_ONCE));
        for (domain, sent) in due.sent {
            self.send_at_once(domain, sent, &runtime);
        }
        for (domain, sent) in others {
            self.spawn_end(domain, sent, Change::UNSENT, &runtime);
        }
        self.give_up(due.late);
        self.warn_of_given_up();
        due.next
    }

    /// Looks after the ends of holds if they are due, so that what another runtime has left is sent with the next use.
    /// The current runtime then also renews what an ended one has held.
    #[inline]
    pub(in crate::limiter) fn look_after(self: &Arc<Self>) {
        if self.ends.is_due() {
            let next = [self.look_after_ends(), self.renewals.next_orphan()];
            self.work_at(next.into_iter().flatten().min());
        }
    }

    /// Makes sure that the current runtime has a worker, if something is due.
    pub(super) fn work_at(self: &Arc<Self>, due: Option<Instant>) {
        if let Some(due) = due {
            self.workers.start(due, None, || Arc::new(HoldJob::new(Arc::clone(self))));
        }
    }

    /// Reports ends that are given up to observers. The store ends these holds by itself.
    fn give_up(&self, given_up: Vec<Kept>) {
        for kept in given_up {
            if !kept.is_missed() {
                self.ends.given_up.fetch_add(1, Ordering::Relaxed);
            }
            self.report_hold_end(&kept.ending, HoldEnd::Unanswered);
        }
    }

    /// Warns of ends that were given up: with the next look after the ends, so that one report counts all of a burst.
    fn warn_of_given_up(&self) {
        if self.ends.given_up.load(Ordering::Relaxed) > 0
            && let Some(listener) = &self.calls.listener
            && self.ends.notice.claim(SystemClock.now_us(), NOTICE_US).is_some()
        {
            let ends = self.ends.given_up.swap(0, Ordering::Relaxed);
            listener.on_event(&Event::of_warning(Warning::ends_given_up(ends)));
        }
    }

    fn stuck(&self) -> Duration {
        // A deadline may be arbitrarily long; sums of times must not overflow.
        self.calls.store.deadline().min(LONGEST_DEADLINE) * 2 + STUCK
    }

    /// Waits until the store has answered the ends of all holds, or none of them for the time of `patience`.
    pub(in crate::limiter) async fn ends_answered(self: &Arc<Self>, patience: Duration) {
        self.ends.hurry();
        let step = self.calls.store.deadline();
        let answered = async {
            let mut silence = Duration::ZERO;
            while silence < patience {
                let answer = self.ends.answered.notified();
                if self.ends.is_quiet() {
                    return;
                }
                self.look_after();
                match within(step, answer).await {
                    Some(()) => silence = Duration::ZERO,
                    None => silence += step,
                }
            }
        };
        within(LONGEST_CLOSE, answered).await;
    }
}
