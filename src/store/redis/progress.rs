//! How far a check has come, for a caller that stops waiting at the deadline.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{protocol::Step, queue::MAX_CHARGES};
use crate::{
    breaker::Breakers,
    clock::{Clock, SystemClock},
    error::{Error, ErrorKind},
    runtime::stalls::Begin,
    store::{GiveUp, no_answer},
};

/// Adds up the time for which Redis has had calls of one check.
///
/// The time that a check spends in our own queue is no failure of the store.
#[derive(Debug)]
pub(super) struct Progress {
    /// When the check was made, or when the first connection was there that it waited for.
    made_us: AtomicU64,
    first_connection: Mutex<FirstConnection>,
    /// Calls that have been sent and not answered, ..
    unanswered: AtomicU32,
    /// .. since when there are some, ..
    since_us: AtomicU64,
    /// .. and how long there were some before.
    with_store_us: AtomicU64,
    may_have_charged: AtomicBool,
    /// What goes on where the check waits.
    traffic: Mutex<Option<Entered>>,
    /// Whether the check has several keys, which may be in several parts of a cluster.
    has_parts: bool,
    /// The breakers of the parts, and when the wait began.
    breakers: OnceLock<(Arc<Breakers>, Begin)>,
}

/// Whether the check waits for the first connection, beyond its deadline.
#[derive(Clone, Copy, Debug, Default)]
enum FirstConnection {
    /// It was there.
    #[default]
    Made,
    /// It is being made.
    Awaited { since: Begin, limit: Duration },
    /// The check has waited for it, until then.
    Waited { until: Begin },
}

/// What goes on between one runtime and Redis, or a part of a cluster.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Calls that have been answered, ..
    answers: AtomicU64,
    /// .. and when the last one was, by the process's clock.
    answered_us: AtomicU64,
    /// Checks that wait or are under way, those of other parts as well: they all take the same threads.
    pub(super) checks: Arc<AtomicUsize>,
}

/// What there was when a check came.
#[derive(Debug)]
struct Entered {
    traffic: Arc<Traffic>,
    answers: u64,
    is_crowd: bool,
}

impl Traffic {
    /// Shares the number of checks with the traffic of other parts.
    pub(super) fn with(checks: Arc<AtomicUsize>) -> Self {
        Self { checks, ..Self::default() }
    }

    /// Notes that a call was answered.
    pub(super) fn answered(&self) {
        self.answered_us.store(SystemClock.now_us(), Ordering::Relaxed);
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there are more checks than two full calls carry. Such a crowd may be late because of itself.
    fn is_crowd(&self) -> bool {
        self.checks.load(Ordering::Relaxed) > 2 * MAX_CHARGES
    }
}

/// Less time in our own queue makes no difference: the timers that start calls are late by as much.
const SHORT: Duration = Duration::from_millis(10);

impl Progress {
    /// Of a check that is made now. With `has_parts` it asks the breaker of each part by itself.
    pub(super) fn new(has_parts: bool) -> Arc<Self> {
        Arc::new(Self {
            made_us: AtomicU64::new(SystemClock.now_us()),
            first_connection: Mutex::default(),
            unanswered: AtomicU32::new(0),
            since_us: AtomicU64::new(0),
            with_store_us: AtomicU64::new(0),
            may_have_charged: AtomicBool::new(false),
            traffic: Mutex::default(),
            has_parts,
            breakers: OnceLock::new(),
        })
    }

    /// The breakers, if this check asks them by itself, and when the wait began.
    #[cfg(feature = "cluster")]
    pub(super) fn breakers(&self) -> Option<&(Arc<Breakers>, Begin)> {
        self.breakers.get()
    }

    /// Notes that the check waits for the first connection, at most for `limit`.
    pub(super) fn awaits_connection(&self, limit: Duration) {
        if let Some(since) = Begin::now(limit) {
            *self.first_connection() = FirstConnection::Awaited { since, limit };
        }
    }

    /// Notes that it is there, or that it could not be made. The deadline counts from here.
    pub(super) fn has_connection(&self) {
        if let Some(until) = Begin::now(Duration::ZERO) {
            *self.first_connection() = FirstConnection::Waited { until };
            self.made_us.store(SystemClock.now_us(), Ordering::Relaxed);
        }
    }

    /// Notes that it is not there in time. A check that has waited for longer than its deadline then gets its error, any
    /// other one has the rest of its deadline.
    pub(super) fn misses_connection(&self, deadline: Duration) -> Result<(), Error> {
        let error = self.error(deadline);
        match std::mem::take(&mut *self.first_connection()) {
            FirstConnection::Awaited { since, .. } if since.running(Instant::now()) >= deadline => Err(error),
            _ => Ok(()),
        }
    }

    fn first_connection(&self) -> MutexGuard<'_, FirstConnection> {
        // It is put in whole.
        self.first_connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a step of the check comes into a queue.
    pub(super) fn queued(&self, traffic: &Arc<Traffic>) {
        // It is put in whole.
        let mut entered = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        *entered = Some(Entered {
            answers: traffic.answers.load(Ordering::Relaxed),
            is_crowd: traffic.is_crowd(),
            traffic: Arc::clone(traffic),
        });
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

    /// Whether Redis has answered calls since the check came into a queue.
    pub(super) fn has_seen_answers(&self) -> bool {
        self.has_seen(|entered| entered.traffic.answers.load(Ordering::Relaxed) != entered.answers)
    }

    /// Whether Redis goes on answering: it has since the check came, and in the last half of the deadline. A Redis that
    /// has just fallen silent is left to the failure policy.
    fn sees_answers(&self, deadline: Duration, now_us: u64) -> bool {
        let recent_us = u64::try_from(deadline.as_micros() / 2).unwrap_or(u64::MAX);
        let is_recent =
            |entered: &Entered| now_us.saturating_sub(entered.traffic.answered_us.load(Ordering::Relaxed)) < recent_us;
        self.has_seen_answers() && self.has_seen(is_recent)
    }

    /// Whether the check has been in a crowd, as it came or now.
    fn has_seen_crowd(&self) -> bool {
        self.has_seen(|entered| entered.is_crowd || entered.traffic.is_crowd())
    }

    fn has_seen(&self, what: impl FnOnce(&Entered) -> bool) -> bool {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(what)
    }

    /// Whether the check has spent a good part of the deadline in our own queue.
    fn has_waited_here(&self, deadline: Duration, now_us: u64) -> bool {
        let under_way_us = if self.unanswered.load(Ordering::Relaxed) > 0 { self.under_way_us(now_us) } else { 0 };
        let with_store_us = self.with_store_us.load(Ordering::Relaxed) + under_way_us;
        let here = Duration::from_micros(
            now_us.saturating_sub(self.made_us.load(Ordering::Relaxed)).saturating_sub(with_store_us),
        );
        here >= SHORT.max(deadline / 4)
    }
}

impl GiveUp for Progress {
    fn error(&self, deadline: Duration) -> Error {
        // Redis answers, so it is not silent: it has too much to do, and this process is why.
        if let FirstConnection::Awaited { limit, .. } = *self.first_connection() {
            return Error::new(ErrorKind::Deadline, format!("no first connection within {limit:?}"));
        }
        let now_us = SystemClock.now_us();
        let is_ours = || self.has_seen_crowd() || self.has_waited_here(deadline, now_us);
        let error = if self.sees_answers(deadline, now_us) && is_ours() {
            Error::new(ErrorKind::Overloaded, format!("too many checks for an answer within {deadline:?}"))
        } else {
            no_answer(deadline)
        };
        if self.may_have_charged.load(Ordering::Relaxed) { error.charge_unknown() } else { error }
    }

    fn more_time(&self, deadline: Duration) -> Option<Duration> {
        let (since, time) = match *self.first_connection() {
            FirstConnection::Made => return None,
            FirstConnection::Awaited { since, limit } => (since, limit),
            FirstConnection::Waited { until } => (until, deadline),
        };
        Some(time.saturating_sub(since.running(Instant::now()))).filter(|more| !more.is_zero())
    }

    fn takes_over(&self, breakers: &Arc<Breakers>) -> bool {
        let Some(begin) = self.has_parts.then(|| Begin::now(Duration::ZERO)).flatten() else { return false };
        self.breakers.set((Arc::clone(breakers), begin)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(50);

    /// The error of a check that was made 50 ms ago, has waited `here` for so long, and has been with Redis since.
    fn error(here: Duration, answered: bool, crowded: bool) -> ErrorKind {
        let (mut progress, traffic) = (Arc::into_inner(Progress::new(false)).unwrap(), Arc::<Traffic>::default());
        progress.queued(&traffic);
        if answered {
            traffic.answered();
        }
        traffic.checks.store(if crowded { 1_000 } else { 100 }, Ordering::Relaxed);
        *progress.made_us.get_mut() -= 50_000;
        if here < DEADLINE {
            let made_us = *progress.made_us.get_mut();
            progress.sent(Step::Pay, made_us + u64::try_from(here.as_micros()).unwrap());
        }
        let error = progress.error(DEADLINE);
        assert_eq!(error.may_have_charged(), here < DEADLINE);
        error.kind()
    }

    #[test]
    fn only_what_waits_for_our_own_checks_while_others_are_answered_is_overload() {
        for (here_ms, answered, crowded, kind) in [
            (50, true, false, ErrorKind::Overloaded),
            (20, true, false, ErrorKind::Overloaded),
            // It was with Redis for most of the time, or a timer of ours was late.
            (8, true, false, ErrorKind::Deadline),
            (0, true, false, ErrorKind::Deadline),
            // The same, behind a crowd of ours.
            (8, true, true, ErrorKind::Overloaded),
            (0, true, true, ErrorKind::Overloaded),
            // A store that says nothing, or cannot be dialled.
            (50, false, false, ErrorKind::Deadline),
            (20, false, true, ErrorKind::Deadline),
            (0, false, true, ErrorKind::Deadline),
        ] {
            let here = Duration::from_millis(here_ms);
            assert_eq!(error(here, answered, crowded), kind, "{here_ms} {answered} {crowded}");
        }
    }

    #[test]
    fn the_time_of_several_steps_is_added_up() {
        let progress = Progress::new(false);
        let made_us = progress.made_us.load(Ordering::Relaxed);
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
