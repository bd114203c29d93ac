//! How far a check has come, for a caller that stops waiting at the deadline.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::protocol::Step;
use crate::{
    clock::{Clock, SystemClock},
    error::{Error, ErrorKind},
    failure::Circuits,
    presence::Begin,
    store::{GiveUp, no_answer},
};

/// Adds up the time for which Redis has had calls of one check.
///
/// The time that a check spends in our own queue is no failure of the store.
#[derive(Debug)]
pub(super) struct Progress {
    made_us: u64,
    /// Calls that have been sent and not answered, ..
    unanswered: AtomicU32,
    /// .. since when there are some, ..
    since_us: AtomicU64,
    /// .. and how long there were some before.
    with_store_us: AtomicU64,
    may_have_charged: AtomicBool,
    /// How many calls of its queue had been answered when the check came into it.
    answers: Mutex<Option<(Answers, u64)>>,
    /// Whether the check has several keys, which may be in several parts of a cluster.
    has_parts: bool,
    /// The breakers of the parts, and when the wait began.
    breakers: OnceLock<(Arc<Circuits>, Begin)>,
}

/// Counts the calls of a queue that have been answered.
pub(super) type Answers = Arc<AtomicU64>;

/// Less time in our own queue makes no difference: the timers that start calls are late by as much.
const SHORT: Duration = Duration::from_millis(10);

impl Progress {
    /// Of a check that is made now. With `has_parts` it asks the breaker of each part by itself.
    pub(super) fn new(has_parts: bool) -> Arc<Self> {
        Arc::new(Self {
            made_us: SystemClock.now_us(),
            unanswered: AtomicU32::new(0),
            since_us: AtomicU64::new(0),
            with_store_us: AtomicU64::new(0),
            may_have_charged: AtomicBool::new(false),
            answers: Mutex::default(),
            has_parts,
            breakers: OnceLock::new(),
        })
    }

    /// The breakers, if this check asks them by itself, and when the wait began.
    #[cfg(feature = "cluster")]
    pub(super) fn breakers(&self) -> Option<&(Arc<Circuits>, Begin)> {
        self.breakers.get()
    }

    /// Notes that a step of the check comes into a queue.
    pub(super) fn queued(&self, answers: &Answers) {
        // It is put in whole.
        let mut known = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((Arc::clone(answers), answers.load(Ordering::Relaxed)));
    }

    /// Notes that a call with one step of the check is sent now, by the process's clock.
    pub(super) fn sent(&self, step: Step, now_us: u64) {
        if step.charges() {
            self.may_have_charged.store(true, Ordering::Relaxed);
        }
        if self.unanswered.fetch_add(1, Ordering::Relaxed) == 0 {
            self.since_us.store(now_us, Ordering::Relaxed);
        }
    }

    /// Notes the end of such a call.
    pub(super) fn ended(&self, now_us: u64) {
        if self.unanswered.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.with_store_us.fetch_add(self.under_way_us(now_us), Ordering::Relaxed);
        }
    }

    fn under_way_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.since_us.load(Ordering::Relaxed))
    }

    /// Whether Redis has answered calls of the queue since the check came into it.
    pub(super) fn has_seen_answers(&self) -> bool {
        let known = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().is_some_and(|(answers, before)| answers.load(Ordering::Relaxed) != *before)
    }

    /// Whether the check has spent a good part of the deadline in our own queue.
    fn has_waited_here(&self, deadline: Duration, now_us: u64) -> bool {
        let under_way_us = if self.unanswered.load(Ordering::Relaxed) > 0 { self.under_way_us(now_us) } else { 0 };
        let with_store_us = self.with_store_us.load(Ordering::Relaxed) + under_way_us;
        let here = Duration::from_micros(now_us.saturating_sub(self.made_us).saturating_sub(with_store_us));
        here >= SHORT.max(deadline / 4)
    }
}

impl GiveUp for Progress {
    fn error(&self, deadline: Duration) -> Error {
        let error = if self.has_seen_answers() && self.has_waited_here(deadline, SystemClock.now_us()) {
            Error::new(ErrorKind::Overloaded, format!("not sent early enough for an answer within {deadline:?}"))
        } else {
            no_answer(deadline)
        };
        if self.may_have_charged.load(Ordering::Relaxed) { error.charge_unknown() } else { error }
    }

    fn takes_over(&self, circuits: &Arc<Circuits>) -> bool {
        let Some(begin) = self.has_parts.then(|| Begin::now(Duration::ZERO)).flatten() else { return false };
        self.breakers.set((Arc::clone(circuits), begin)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(50);

    /// The error of a check that was made 50 ms ago, has waited `here` for so long, and has been with Redis since.
    fn error(here: Duration, answered: bool) -> ErrorKind {
        let (mut progress, answers) = (Arc::into_inner(Progress::new(false)).unwrap(), Answers::default());
        progress.queued(&answers);
        answers.fetch_add(u64::from(answered), Ordering::Relaxed);
        progress.made_us -= 50_000;
        if here < DEADLINE {
            progress.sent(Step::Pay, progress.made_us + u64::try_from(here.as_micros()).unwrap());
        }
        let error = progress.error(DEADLINE);
        assert_eq!(error.may_have_charged(), here < DEADLINE);
        error.kind()
    }

    #[test]
    fn only_a_check_that_waits_in_our_queue_while_others_are_answered_is_overload() {
        for (here_ms, answered, kind) in [
            (50, true, ErrorKind::Overloaded),
            (20, true, ErrorKind::Overloaded),
            // It was with Redis for most of the time, or a timer of ours was late.
            (8, true, ErrorKind::Deadline),
            (0, true, ErrorKind::Deadline),
            // A store that says nothing, or cannot be dialled.
            (50, false, ErrorKind::Deadline),
            (20, false, ErrorKind::Deadline),
        ] {
            assert_eq!(error(Duration::from_millis(here_ms), answered), kind, "{here_ms} {answered}");
        }
    }

    #[test]
    fn the_time_of_several_steps_is_added_up() {
        let progress = Progress::new(false);
        let made_us = progress.made_us;
        // Two looks at the same time, and a payment later.
        progress.sent(Step::Pay, made_us + 1_000);
        progress.sent(Step::Pay, made_us + 2_000);
        progress.ended(made_us + 20_000);
        progress.ended(made_us + 24_000);
        progress.sent(Step::Pay, made_us + 25_000);
        assert!(!progress.has_waited_here(DEADLINE, made_us + 50_000));
        progress.ended(made_us + 40_000);
        assert!(progress.has_waited_here(DEADLINE, made_us + 60_000));
    }
}
