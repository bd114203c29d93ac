//! How far a check has come, for a caller that stops waiting at the deadline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::protocol::Step;
use crate::{
    clock::{Clock, SystemClock},
    error::{Error, ErrorKind},
    store::{GiveUp, no_answer},
};

/// Counts the calls of one check that have been sent and not answered.
///
/// The time that a check spends in our own queue is no failure of the store. It is told from a silent store by what
/// happened meanwhile: a store that is well has answered other calls.
#[derive(Debug)]
pub(super) struct Progress {
    unanswered: AtomicU32,
    /// When the last of them was sent.
    sent_us: AtomicU64,
    may_have_charged: AtomicBool,
    /// Calls that the store has answered, ..
    answers: Arc<AtomicU64>,
    /// .. and how many those were when this check was made.
    answers_before: u64,
}

impl Progress {
    /// Of a check that is made now. `answers` counts the calls that the store answers.
    pub(super) fn new(answers: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            unanswered: AtomicU32::new(0),
            sent_us: AtomicU64::new(0),
            may_have_charged: AtomicBool::new(false),
            answers: Arc::clone(answers),
            answers_before: answers.load(Ordering::Relaxed),
        })
    }

    /// Notes that a call with one step of the check is sent now, by the process's clock.
    pub(super) fn sent(&self, step: Step, now_us: u64) {
        self.sent_us.store(now_us, Ordering::Relaxed);
        if step.charges() {
            self.may_have_charged.store(true, Ordering::Relaxed);
        }
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the end of such a call.
    pub(super) fn ended(&self) {
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Progress {
    /// Whether it is the store that has kept the check waiting: it has answered nothing since, or has had the call for
    /// nearly all of the deadline.
    fn waits_for_the_store(&self, deadline: Duration) -> bool {
        let had_us = SystemClock.now_us().saturating_sub(self.sent_us.load(Ordering::Relaxed));
        self.answers.load(Ordering::Relaxed) == self.answers_before
            || (self.unanswered.load(Ordering::Relaxed) > 0 && u128::from(had_us) * 10 >= deadline.as_micros() * 9)
    }
}

impl GiveUp for Progress {
    fn error(&self, deadline: Duration) -> Error {
        let error = if self.waits_for_the_store(deadline) {
            no_answer(deadline)
        } else {
            Error::new(ErrorKind::Overloaded, format!("not sent early enough for an answer within {deadline:?}"))
        };
        if self.may_have_charged.load(Ordering::Relaxed) { error.charge_unknown() } else { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_check_that_waits_in_our_queue_while_others_are_answered_is_overload() {
        let answers = Arc::default();
        let progress = Progress::new(&answers);
        let state = || {
            let error = progress.error(Duration::from_millis(50));
            (error.kind(), error.may_have_charged())
        };
        // A store that says nothing, or cannot be dialled.
        assert_eq!(state(), (ErrorKind::Deadline, false));
        answers.fetch_add(1, Ordering::Relaxed);
        assert_eq!(state(), (ErrorKind::Overloaded, false));
        let now_us = SystemClock.now_us();
        progress.sent(Step::Pay, now_us);
        assert_eq!(state(), (ErrorKind::Overloaded, true));
        progress.sent_us.store(now_us - 45_000, Ordering::Relaxed);
        assert_eq!(state(), (ErrorKind::Deadline, true));
        progress.ended();
        assert_eq!(state(), (ErrorKind::Overloaded, true));
    }
}
