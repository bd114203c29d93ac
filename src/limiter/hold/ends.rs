//! What the holds of a limiter share, and the ends of holds that are on their way to the store, in a queue for each
//! failure domain.
//!
//! The end of a hold is idempotent, so it may be sent again although its fate is unknown. It is kept for one
//! time-to-live of its hold: later, the store has ended the hold by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, time::Duration};

use tokio::{runtime, sync::Notify, time::Instant};

use crate::limiter::hold::domain::{BOUNDED, Domain, Kept, PAUSE, Sent};
use crate::{
    calls::Calls, clock::micros, error::Error, hold::SettleAnswer, key::Key, limiter::hold::renewals::Renewals,
    observe::Throttle, policy::Policy, runtime::workers::Workers,
};

/// The ends of holds that the store has not answered.
#[derive(Debug)]
pub(in crate::limiter) struct Ends {
    state: Mutex<State>,
    /// When the ends have to be looked after, in microseconds since `start`: a check that comes later does.
    look_us: AtomicU64,
    start: Instant,
    /// Signalled with each answer, for callers that wait until all ends are answered.
    pub(super) answered: Notify,
    /// The ends that were given up and not reported yet.
    pub(super) given_up: AtomicU64,
    /// Spaces the reports.
    pub(super) notice: Throttle,
}

#[derive(Debug, Default)]
struct State {
    domains: Vec<Domain>,
}

/// Largest number of ends of each class that is kept to be sent again, about 2 MB. The oldest is given up for one more.
const MOST_KEPT: usize = 10_000;
/// There is nothing to look after.
const NEVER: u64 = u64::MAX;

/// What becomes of an end after an answer.
pub(super) struct Answered {
    /// The end, if this was its last answer.
    pub(super) last: Option<Kept>,
    /// The ends that are given up, because too many are kept.
    pub(super) given_up: Vec<Kept>,
    /// When an end is to be sent again.
    pub(super) next: Option<Instant>,
    /// Whether other ends of the domain wait to be sent, now or later.
    pub(super) has_waiting: bool,
}

/// What is to be done now.
#[derive(Default)]
pub(super) struct Due {
    /// The ends to send, with their failure domain.
    pub(super) sent: Vec<(usize, Sent)>,
    /// The ends that were kept for too long.
    pub(super) late: Vec<Kept>,
    /// When something is due next.
    pub(super) next: Option<Instant>,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            look_us: AtomicU64::new(NEVER),
            start: Instant::now(),
            answered: Notify::default(),
            given_up: AtomicU64::new(0),
            notice: Throttle::default(),
        }
    }
}

impl State {
    fn domain(&mut self, domain: usize) -> &mut Domain {
        if self.domains.len() <= domain {
            self.domains.resize_with(domain + 1, Domain::default);
        }
        &mut self.domains[domain]
    }

    /// Drops the oldest repeated ends of a domain while there are too many of all domains.
    fn bound(&mut self, domain: usize) -> Vec<Kept> {
        let mut given_up = Vec::new();
        for class in BOUNDED {
            let number: usize = self.domains.iter().map(|domain| domain.repeated(class)).sum();
            if number > MOST_KEPT {
                given_up.extend(self.domain(domain).drop_oldest(class));
            }
        }
        given_up
    }
}

impl Ends {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves the queues whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_at(&self, time: Instant) {
        self.look_us.fetch_min(micros(time.saturating_duration_since(self.start)), Ordering::AcqRel);
    }

    /// The next check of any runtime looks after the ends.
    pub(super) fn look_soon(&self) {
        self.look_us.store(0, Ordering::Release);
    }

    /// Whether the ends have to be looked after now.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        let look_us = self.look_us.load(Ordering::Acquire);
        look_us != NEVER && look_us <= micros(Instant::now().saturating_duration_since(self.start))
    }

    /// Adds an end to those that are sent as soon as possible.
    pub(super) fn push(&self, domain: usize, kept: Kept) {
        self.lock().domain(domain).push(kept);
    }

    /// Puts an end in flight if there is room, so that the caller sends it. Otherwise it waits.
    pub(super) fn put_in_flight(&self, domain: usize, kept: Kept, here: runtime::Id, stuck: Duration) -> Option<Sent> {
        let now = Instant::now();
        let sent = {
            let mut state = self.lock();
            let domain = state.domain(domain);
            match domain.has_room() {
                true => Some(domain.put_in_flight(kept, false, now, here)),
                false => {
                    domain.push(kept);
                    None
                }
            }
        };
        self.look_at(now + stuck);
        sent
    }

    /// Takes the next end of a domain. Ends that were kept for too long go to `late`.
    pub(super) fn take(&self, domain: usize, here: runtime::Id, late: &mut Vec<Kept>) -> Option<Sent> {
        self.lock().domain(domain).take(Instant::now(), here, late)
    }

    /// Notes the answer to an end in flight.
    pub(super) fn on_answer(
        &self,
        domain: usize,
        number: u64,
        answer: &Result<SettleAnswer, Error>,
        stuck: Duration,
    ) -> Answered {
        let answered = self.change(domain, stuck, |domain, now| domain.on_answer(number, answer, now));
        self.answered.notify_waiters();
        answered
    }

    /// Keeps an end after an answer that its caller has received, and that is not the last one.
    pub(super) fn repeat(
        &self,
        domain: usize,
        kept: Kept,
        answer: &Result<SettleAnswer, Error>,
        stuck: Duration,
    ) -> Answered {
        self.change(domain, stuck, |domain, now| {
            domain.on_evidence(answer, now);
            domain.repeat(kept, answer, now);
            None
        })
    }

    fn change(
        &self,
        domain: usize,
        stuck: Duration,
        change: impl FnOnce(&mut Domain, Instant) -> Option<Kept>,
    ) -> Answered {
        let now = Instant::now();
        let mut state = self.lock();
        let last = change(state.domain(domain), now);
        let given_up = state.bound(domain);
        let domain = state.domain(domain);
        let (next, has_waiting) = (domain.next_repeat(now), domain.has_waiting());
        drop(state);
        if let Some(next) = next {
            self.look_at(next.min(now + stuck));
        }
        Answered { last, given_up, next, has_waiting }
    }

    /// Notes that the task of an end is gone, with its runtime.
    pub(super) fn on_abort(&self, domain: usize, number: u64, attempt: u32, is_sent: bool) {
        self.lock().domain(domain).on_abort(number, attempt, is_sent);
        self.look_soon();
    }

    /// Forgets an end whose task has panicked.
    pub(super) fn forget(&self, domain: usize, number: u64) {
        if self.lock().domain(domain).forget(number).is_some() {
            self.given_up.fetch_add(1, Ordering::Relaxed);
            self.look_soon();
        }
    }

    /// Takes what is due in all domains: what was not sent, what is to be sent again, and what other runtimes have sent
    /// `stuck` ago.
    pub(super) fn take_due(&self, here: runtime::Id, stuck: Duration) -> Due {
        let now = Instant::now();
        let mut due = Due::default();
        let mut state = self.lock();
        let mut look = None::<Instant>;
        for (number, domain) in state.domains.iter_mut().enumerate() {
            due.sent.extend(domain.take_over(now, here, stuck).into_iter().map(|sent| (number, sent)));
            while let Some(sent) = domain.take(now, here, &mut due.late) {
                due.sent.push((number, sent));
            }
            domain.shrink();
            let next = domain.next_look(now, Some(here), stuck);
            due.next = [due.next, next].into_iter().flatten().min();
            // A stuck end of this runtime is looked after by the others.
            let next = domain.next_look(now, None, stuck).map(|next| next.max(now + PAUSE / 16));
            look = [look, next].into_iter().flatten().min();
        }
        let look_us = look.map_or(NEVER, |look| micros(look.saturating_duration_since(self.start)));
        self.look_us.store(look_us, Ordering::Release);
        due
    }

    /// Whether nothing waits for an answer but the ends of uncertain holds that are repeated.
    pub(super) fn is_quiet(&self) -> bool {
        self.lock().domains.iter().all(Domain::is_quiet)
    }

    /// Makes all ends that have failed due now.
    pub(super) fn hurry(&self) {
        let now = Instant::now();
        self.lock().domains.iter_mut().for_each(|domain| domain.hurry(now));
        self.look_soon();
    }
}

/// What changes holds in the store, and the changes that are due.
#[derive(Clone)]
pub(in crate::limiter) struct SharedHolds {
    pub(in crate::limiter) calls: Arc<Calls>,
    /// The ends of holds that the store has not answered yet.
    pub(super) ends: Arc<Ends>,
    /// The holds that are renewed while they are held.
    pub(super) renewals: Arc<Renewals>,
    /// The tasks that look after both, one in each runtime.
    pub(super) workers: Arc<Workers>,
    /// Hears of what may let callers pass that wait for their units.
    pub(super) waiters: Arc<dyn OnChangedCount>,
}

/// Hears of counts that holds have changed.
pub(in crate::limiter) trait OnChangedCount: Send + Sync {
    /// A hold of the count has ended.
    fn hold_ended(&self, key: &Key, policy: &Policy);

    /// A settlement that came too late was charged.
    fn charged_late(&self, key: &Key, policy: &Policy);
}

impl SharedHolds {
    pub(in crate::limiter) fn new(calls: Arc<Calls>, waiters: Arc<dyn OnChangedCount>) -> Self {
        Self { calls, ends: Arc::default(), renewals: Arc::default(), workers: Arc::default(), waiters }
    }

    /// The same holds with other calls or other waiters.
    pub(in crate::limiter) fn with(&self, calls: Arc<Calls>, waiters: Arc<dyn OnChangedCount>) -> Self {
        Self { calls, waiters, ..self.clone() }
    }
}

impl fmt::Debug for SharedHolds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedHolds").field("calls", &self.calls).finish_non_exhaustive()
    }
}
