//! The progress of a check, from which its error at the deadline is derived.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{denials::RememberedDenial, queued::Queued, traffic::Traffic};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};
use crate::store::contract::{DeadlineHandler, no_answer};
use crate::{breaker::Breakers, runtime::stalls::Begin};

/// The progress of one check. Adds up the time during which calls of the check are in flight.
///
/// Other time, in queues of this process, is not a failure of the store.
#[derive(Debug)]
pub(crate) struct Progress {
    /// When the check was made, or when its wait for the first connection ended.
    made_us: AtomicU64,
    first_connection: Mutex<FirstConnection>,
    /// Calls in flight.
    unanswered: AtomicU32,
    /// Start of the current period with calls in flight.
    since_us: AtomicU64,
    /// Length of the earlier periods with calls in flight.
    with_store_us: AtomicU64,
    may_have_charged: AtomicBool,
    /// Whether a request of the check has left the queue for a call.
    is_taken: AtomicBool,
    /// The remembered denial that the check asks again, if it does.
    /// Boxed, because it is rare and large.
    asks_again: Option<Box<RememberedDenial>>,
    /// When a request was queued last, for each failure domain.
    queued: Mutex<SmallVec<[Queued; 1]>>,
    /// Whether the check has several keys of a cluster, which may be in several failure domains.
    spans_domains: bool,
    /// The breakers of the failure domains, and when the wait began.
    breakers: OnceLock<(Arc<Breakers>, Begin)>,
}

/// Whether the check waits or has waited for the first connection.
#[derive(Clone, Copy, Debug, Default)]
enum FirstConnection {
    /// The connection was there: the check did not wait.
    #[default]
    Made,
    /// The check waits, at most for `limit`.
    Awaited { since: Begin, limit: Duration },
    /// The check waited until this time.
    Waited { until: Begin },
}

/// Shorter times in a queue do not count: the timers that start calls are late by as much.
const MIN_QUEUE_TIME: Duration = Duration::from_millis(10);

impl Progress {
    /// The progress of a check that is made now. With `spans_domains` the check asks the breaker of each failure domain
    /// by itself.
    pub(crate) fn new(spans_domains: bool) -> Arc<Self> {
        Self::of(spans_domains, None)
    }

    /// The progress of a check that may ask a remembered denial again.
    pub(crate) fn of(spans_domains: bool, asks_again: Option<Box<RememberedDenial>>) -> Arc<Self> {
        Arc::new(Self {
            asks_again,
            made_us: AtomicU64::new(SystemClock.now_us()),
            first_connection: Mutex::default(),
            unanswered: AtomicU32::new(0),
            since_us: AtomicU64::new(0),
            with_store_us: AtomicU64::new(0),
            may_have_charged: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
            queued: Mutex::default(),
            spans_domains,
            breakers: OnceLock::new(),
        })
    }

    /// The breakers and when the wait began, if the check asks the breakers by itself.
    pub(crate) fn breakers(&self) -> Option<&(Arc<Breakers>, Begin)> {
        self.breakers.get()
    }

    /// Records that the check waits for the first connection, at most for `limit`.
    pub(crate) fn awaits_first_dial(&self, limit: Duration) {
        if let Some(since) = Begin::now(limit) {
            *self.first_connection() = FirstConnection::Awaited { since, limit };
        }
    }

    /// Records that the first dial has ended, with or without a connection. The deadline starts here.
    pub(crate) fn first_dial_ended(&self) {
        if let Some(until) = Begin::now(Duration::ZERO) {
            *self.first_connection() = FirstConnection::Waited { until };
            self.made_us.store(SystemClock.now_us(), Ordering::Relaxed);
        }
    }

    /// Records that the first dial has not ended in time. A check that has waited for its deadline or longer gets an
    /// error; another check keeps the rest of its deadline.
    pub(crate) fn first_dial_timed_out(&self, deadline: Duration) -> Result<(), Error> {
        let error = self.error(deadline);
        match std::mem::take(&mut *self.first_connection()) {
            FirstConnection::Awaited { since, .. } if since.running(Instant::now()) >= deadline => Err(error),
            _ => Ok(()),
        }
    }

    fn first_connection(&self) -> MutexGuard<'_, FirstConnection> {
        // The value is replaced as a whole, so a poisoned lock is usable.
        self.first_connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request of the check is queued.
    pub(crate) fn queued(&self, traffic: &Arc<Traffic>) {
        let new = Queued::now(traffic);
        let mut all = self.queues();
        match all.iter_mut().find(|queued| queued.domain() == traffic.domain()) {
            Some(queued) => *queued = new,
            None => all.push(new),
        }
    }

    fn queues(&self) -> MutexGuard<'_, SmallVec<[Queued; 1]>> {
        // Each value is replaced as a whole, so a poisoned lock is usable.
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request of the check leaves the queue. The caller then looks whether the check is still wanted,
    /// and a check that is given up asks in the opposite order, so that one of them sees the other.
    pub(crate) fn taken(&self) {
        self.is_taken.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Records that a call of the check is sent at `now_us`, by the process's clock.
    pub(crate) fn sent(&self, may_charge: bool, now_us: u64) {
        self.is_taken.store(true, Ordering::Relaxed);
        if may_charge {
            self.may_have_charged.store(true, Ordering::Relaxed);
        }
        if self.unanswered.fetch_add(1, Ordering::Relaxed) == 0 {
            self.since_us.store(now_us, Ordering::Relaxed);
        }
    }

    /// Whether a call was sent that may have charged units.
    pub(crate) fn may_have_charged(&self) -> bool {
        self.may_have_charged.load(Ordering::Relaxed)
    }

    /// Records the end of a call, with or without a reply.
    pub(crate) fn ended(&self, now_us: u64) {
        if self.unanswered.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.with_store_us.fetch_add(self.in_flight_us(now_us), Ordering::Relaxed);
        }
    }

    /// Length of the current period with calls in flight.
    fn in_flight_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.since_us.load(Ordering::Relaxed))
    }

    /// Whether all failure domains to which the check was queued have answered calls since then.
    pub(crate) fn has_seen_answers(&self) -> bool {
        self.queues().iter().all(Queued::has_seen_answers)
    }

    /// Time since the check was made, or since its wait for the first connection ended.
    fn waited(&self, now_us: u64) -> Duration {
        Duration::from_micros(now_us.saturating_sub(self.made_us.load(Ordering::Relaxed)))
    }

    /// Whether the check has spent a quarter of the deadline or more in queues of this process, while there was a
    /// connection. For the time `dialled` there was none.
    fn has_waited_here(&self, deadline: Duration, dialled: Duration, now_us: u64) -> bool {
        let in_flight_us = if self.unanswered.load(Ordering::Relaxed) > 0 { self.in_flight_us(now_us) } else { 0 };
        let with_store = Duration::from_micros(self.with_store_us.load(Ordering::Relaxed) + in_flight_us);
        self.waited(now_us).saturating_sub(with_store + dialled) >= MIN_QUEUE_TIME.max(deadline / 4)
    }

    /// The error at the deadline of the requests to one failure domain, whatever the others do.
    pub(crate) fn error_in(&self, domain: usize, deadline: Duration) -> Error {
        self.late(deadline, |queued| queued.domain() == domain)
    }

    /// The error at the deadline of the requests to those failure domains that are `meant`.
    fn late(&self, deadline: Duration, meant: impl Fn(&Queued) -> bool) -> Error {
        if let FirstConnection::Awaited { limit, .. } = *self.first_connection() {
            return Error::new(ErrorKind::Deadline, format!("no first connection within {limit:?}"));
        }
        let (made_us, now_us) = (self.made_us.load(Ordering::Relaxed), SystemClock.now_us());
        let all = self.queues();
        let queued: SmallVec<[&Queued; 4]> = all.iter().filter(|queued| meant(queued)).collect();
        // One domain that is silent is enough for the failure policy to decide.
        let sees_answers = !queued.is_empty() && queued.iter().all(|queued| queued.sees_answers(deadline / 2));
        let dialled = queued.iter().map(|queued| queued.unconnected(made_us, now_us)).max().unwrap_or_default();
        let has_seen_crowd = || queued.iter().any(|queued| queued.has_seen_crowd());
        let is_own_load = || has_seen_crowd() || self.has_waited_here(deadline, dialled, now_us);
        // Redis still answers, so this process sends more than Redis can answer in time.
        let error = if sees_answers && is_own_load() {
            Error::new(ErrorKind::Overloaded, format!("too many checks for an answer within {deadline:?}"))
        } else {
            no_answer(deadline)
        };
        if self.may_have_charged.load(Ordering::Relaxed) { error.charge_unknown() } else { error }
    }
}

impl DeadlineHandler for Progress {
    fn error(&self, deadline: Duration) -> Error {
        self.late(deadline, |_| true)
    }

    fn more_time(&self, deadline: Duration) -> Option<Duration> {
        let (since, time) = match *self.first_connection() {
            FirstConnection::Made => return None,
            FirstConnection::Awaited { since, limit } => (since, limit),
            FirstConnection::Waited { until } => (until, deadline),
        };
        Some(time.saturating_sub(since.running(Instant::now()))).filter(|more| !more.is_zero())
    }

    fn may_reach_store(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_taken.load(Ordering::Relaxed)
    }

    fn put_back(&self) {
        if let Some(denial) = &self.asks_again {
            denial.ask_soon();
        }
    }

    fn takes_over(&self, breakers: &Arc<Breakers>) -> bool {
        let Some(begin) = self.spans_domains.then(|| Begin::now(Duration::ZERO)).flatten() else { return false };
        self.breakers.set((Arc::clone(breakers), begin)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::time::advance;

    use super::*;
    use crate::runtime::real_time::RealInstant;

    const DEADLINE: Duration = Duration::from_millis(50);

    /// The error of a check that was made 50 ms ago, was queued for the time `here`, and has been in flight since.
    fn error(here: Duration, answered: bool, crowded: bool) -> ErrorKind {
        let (mut progress, traffic) =
            (Arc::into_inner(Progress::new(false)).unwrap(), Arc::clone(&Traffic::of_domains(1)[0]));
        progress.queued(&traffic);
        if answered {
            traffic.answered();
        }
        (0..if crowded { 1_000 } else { 100 }).for_each(|_| traffic.add_check());
        *progress.made_us.get_mut() -= 50_000;
        if here < DEADLINE {
            let made_us = *progress.made_us.get_mut();
            progress.sent(true, made_us + u64::try_from(here.as_micros()).unwrap());
        }
        let error = progress.error(DEADLINE);
        assert_eq!(error.may_have_charged(), here < DEADLINE);
        error.kind()
    }

    #[tokio::test]
    async fn a_late_check_is_overload_only_if_it_waits_behind_own_checks_while_others_are_answered() {
        for (here_ms, answered, crowded, kind) in [
            (50, true, false, ErrorKind::Overloaded),
            (20, true, false, ErrorKind::Overloaded),
            // In flight for most of the time, or a timer of this process was late.
            (8, true, false, ErrorKind::Deadline),
            (0, true, false, ErrorKind::Deadline),
            // The same, behind a crowd of this process's checks.
            (8, true, true, ErrorKind::Overloaded),
            (0, true, true, ErrorKind::Overloaded),
            // A store that is silent, or cannot be dialled.
            (50, false, false, ErrorKind::Deadline),
            (20, false, true, ErrorKind::Deadline),
            (0, false, true, ErrorKind::Deadline),
        ] {
            let here = Duration::from_millis(here_ms);
            assert_eq!(error(here, answered, crowded), kind, "{here_ms} {answered} {crowded}");
        }
    }

    /// The error of a check behind a crowd, when the last answer is `silent` old. The runtime has stalled for the last
    /// `stalled` of this time.
    async fn error_after_silence(silent_ms: u64, stalled_ms: u64) -> ErrorKind {
        let (mut progress, traffic) =
            (Arc::into_inner(Progress::new(false)).unwrap(), Arc::clone(&Traffic::of_domains(1)[0]));
        (0..1_000).for_each(|_| traffic.add_check());
        progress.queued(&traffic);
        traffic.answered();
        advance(Duration::from_millis(silent_ms - stalled_ms)).await;
        let stalled = Duration::from_millis(stalled_ms);
        // A stall, which passes by both clocks.
        thread::sleep(stalled);
        advance(stalled).await;
        *progress.made_us.get_mut() -= 50_000;
        progress.error(DEADLINE).kind()
    }

    #[tokio::test]
    async fn law_14_a_check_that_came_before_a_crowd_and_outlasts_it_is_overload() {
        let (mut progress, traffic) =
            (Arc::into_inner(Progress::new(false)).unwrap(), Arc::clone(&Traffic::of_domains(1)[0]));
        progress.queued(&traffic);
        *progress.made_us.get_mut() -= 50_000;
        let made_us = *progress.made_us.get_mut();
        progress.sent(true, made_us);
        traffic.answered();
        assert_eq!(progress.error(DEADLINE).kind(), ErrorKind::Deadline);
        (0..1_000).for_each(|_| traffic.add_check());
        traffic.remove_checks(1_000);
        assert_eq!(progress.error(DEADLINE).kind(), ErrorKind::Overloaded);
    }

    #[tokio::test(start_paused = true)]
    async fn law_14_a_stall_of_the_process_is_no_silence_of_the_store() {
        for (silent_ms, stalled_ms, kind) in [
            (20, 0, ErrorKind::Overloaded),
            (30, 0, ErrorKind::Deadline),
            (30, 22, ErrorKind::Overloaded),
            (60, 22, ErrorKind::Deadline),
            (60, 50, ErrorKind::Overloaded),
            (90, 50, ErrorKind::Deadline),
        ] {
            // Once more if the machine has made the stall longer than it should be.
            let error = loop {
                let start = RealInstant::now();
                let error = error_after_silence(silent_ms, stalled_ms).await;
                if start.elapsed() < Duration::from_millis(stalled_ms + 3) {
                    break error;
                }
            };
            assert_eq!(error, kind, "silent for {silent_ms} ms, of which the process stalled for {stalled_ms}");
        }
    }

    #[test]
    fn the_time_of_several_steps_is_added_up() {
        let progress = Progress::new(false);
        let made_us = progress.made_us.load(Ordering::Relaxed);
        // Two evaluations at the same time, and a commit later.
        progress.sent(true, made_us + 1_000);
        progress.sent(true, made_us + 2_000);
        progress.ended(made_us + 20_000);
        progress.ended(made_us + 24_000);
        progress.sent(true, made_us + 25_000);
        assert!(!progress.has_waited_here(DEADLINE, Duration::ZERO, made_us + 50_000));
        progress.ended(made_us + 40_000);
        assert!(!progress.has_waited_here(DEADLINE, Duration::ZERO, made_us + 45_000));
        assert!(progress.has_waited_here(DEADLINE, Duration::ZERO, made_us + 60_000));
    }
}
