//! The shared state of plans, their settings as plain data, and the path of a request through it. The latest answers
//! are in two caches: what clients make up cannot push out what is known.

use std::{sync::Arc, time::Duration};

use foldhash::quality::RandomState;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::entry::{Answer, Entry, Lifetimes, Standing};
use super::in_flight::{self, Admission, InFlight, Mark, Ticket};
#[cfg(feature = "serde")]
use super::names::Names;
use super::source::{AnySource, Form};
use crate::clock::{Clock, SystemClock, micros};
use crate::observe::{Event, Other, PlanFallback, PlanFallbackCause, PlanLookup, PlanOutcome, Reporter};
use crate::{error::FirstMistake, key::Key};

/// What clones of [`Plans`](super::Plans) share.
#[derive(Clone)]
pub(super) struct Core {
    pub(super) source: Arc<dyn AnySource>,
    /// The default plan.
    pub(super) default: Form,
    /// Finds plans by name; `None` if all plans are policies.
    #[cfg(feature = "serde")]
    pub(super) names: Option<Arc<Names>>,
    pub(super) settings: Settings,
    pub(super) mistake: FirstMistake,
    pub(super) known: Arc<Known>,
}

/// The answers so far, and the look-ups on their way.
pub(super) struct Known {
    answers: Answers,
    in_flight: InFlight,
}

impl Known {
    pub(super) fn with_capacity(keys: usize) -> Self {
        Self { answers: Answers::with_capacity(keys), in_flight: InFlight::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }
}

impl Core {
    /// The plan of a key, without waiting. Starts a look-up if one is due.
    #[inline]
    pub(super) fn get(self: &Arc<Self>, key: &Key) -> Form {
        let now_us = self.settings.clock.now_us();
        let standing = self.known.answers.get(key).map_or(Standing::UNKNOWN, |entry| entry.standing(now_us));
        match standing {
            Standing { plan: Some(plan), cause: None, .. } => plan,
            standing => self.without_current_plan(key, standing, now_us),
        }
    }

    #[cold]
    fn without_current_plan(self: &Arc<Self>, key: &Key, mut standing: Standing, now_us: u64) -> Form {
        if standing.is_look_up_due {
            standing = self.start_look_up(key, standing, now_us);
        }
        let Standing { plan, cause, .. } = standing;
        if let (Some(cause), Some(observer)) = (cause, self.settings.reporter.listener()) {
            observer.on_event(&Event::other(Other::PlanFallback(PlanFallback::new(cause, plan.is_some()))));
        }
        plan.unwrap_or_else(|| self.default.clone())
    }

    /// Starts a look-up of the key, unless one is on its way. Returns the standing as it is then.
    fn start_look_up(self: &Arc<Self>, key: &Key, standing: Standing, now_us: u64) -> Standing {
        let Some(runtime) = self.settings.runtime.clone().or_else(|| Handle::try_current().ok()) else {
            return Standing { cause: Some(PlanFallbackCause::NoRuntime), ..standing };
        };
        let overdue_at_us = now_us.saturating_add(micros(self.settings.overdue_after()));
        let mut removed = SmallVec::<[Mark; 1]>::new();
        let mut marks = self.known.in_flight.lock();
        // Another thread may have stored an answer since the cache was read. Answers are stored under this lock.
        if let Some(latest) = self.known.answers.peek(key).map(|entry| entry.standing(now_us))
            && !latest.is_look_up_due
        {
            return latest;
        }
        let is_known = self.known.answers.is_known(key);
        let admission = marks.start(key, is_known, now_us, overdue_at_us, self.settings.max_lookups, &mut removed);
        drop(marks);
        drop(removed);
        match admission {
            Admission::UnderWay => standing,
            Admission::Busy => Standing { cause: Some(PlanFallbackCause::Busy), ..standing },
            Admission::Started { id, cancelled } => {
                let (core, settled) = (Arc::clone(self), key.clone());
                let ticket = Ticket::new(move |answer| core.settle(&settled, id, now_us, answer));
                let look_up = Arc::clone(&self.source).look_up(key.clone());
                drop(runtime.spawn(in_flight::run(look_up, self.settings.timeout, ticket, cancelled)));
                standing
            }
        }
    }

    /// Stores the answer of a look-up, and reports it. Ignores the answer if the look-up was cancelled meanwhile.
    fn settle(&self, key: &Key, id: u64, started_us: u64, answer: Answer) {
        let now_us = self.settings.clock.now_us();
        let (outcome, plan, error) = answer.judge(&self.default);
        let mut marks = self.known.in_flight.lock();
        let Some(mark) = marks.end(key, id) else { return };
        let (answers, lifetimes) = (&self.known.answers, &self.settings.lifetimes);
        match plan {
            Some(plan) if outcome == PlanOutcome::Found => {
                answers.insert_known(key.clone(), Entry::found(plan, now_us, lifetimes));
            }
            Some(plan) => answers.insert(key.clone(), Entry::found(plan, now_us, lifetimes)),
            // Says nothing about the source, so the next request may start another look-up.
            None if outcome == PlanOutcome::Cancelled => {}
            None => answers.insert(key.clone(), Entry::failed(answers.peek(key), now_us, lifetimes)),
        }
        drop(marks);
        drop(mark);
        if let Some(observer) = self.settings.reporter.listener() {
            let elapsed = Duration::from_micros(now_us.saturating_sub(started_us));
            let lookup = PlanLookup::new(outcome, elapsed, error.as_deref());
            observer.on_event(&Event::other(Other::PlanLookup(lookup)));
        }
    }

    /// Stores a plan that the service has learnt by itself.
    pub(super) fn insert(&self, key: Key, plan: Form) {
        let entry = Entry::found(plan, self.settings.clock.now_us(), &self.settings.lifetimes);
        let mut marks = self.known.in_flight.lock();
        let mark = marks.cancel(&key);
        self.known.answers.insert_known(key, entry);
        drop(marks);
        drop(mark);
    }

    /// Forgets the plan of a key, and ignores the answer of a look-up that is on its way. The service knows the key, so
    /// no client has made it up.
    pub(super) fn forget(&self, key: &Key) {
        let mut marks = self.known.in_flight.lock();
        let mark = marks.cancel(key);
        self.known.answers.insert_known(key.clone(), Entry::FORGOTTEN);
        drop(marks);
        drop(mark);
    }
}

type Entries = Cache<Key, Entry, UnitWeighter, RandomState>;

/// The answers so far. Changes need the lock of [`InFlight`].
pub(super) struct Answers {
    /// Keys for which the source has returned a plan, or for which the service has vouched.
    known: Entries,
    /// All other keys: those without a plan of their own, and those whose look-up has failed.
    others: Entries,
}

/// The part of the capacity that other keys have: one in this number. They need less, because the default plan applies
/// to them anyway.
const OTHERS: usize = 4;

impl Answers {
    pub(super) fn with_capacity(keys: usize) -> Self {
        let others = (keys / OTHERS).max(1);
        Self { known: entries((keys - others).max(1)), others: entries(others) }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len() + self.others.len()
    }

    /// The answer about a key, which counts as a use.
    #[inline]
    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        self.known.get(key).or_else(|| self.others.get(key))
    }

    /// The answer about a key, which does not count as a use.
    pub(super) fn peek(&self, key: &Key) -> Option<Entry> {
        self.known.peek(key).or_else(|| self.others.peek(key))
    }

    pub(super) fn is_known(&self, key: &Key) -> bool {
        self.known.contains_key(key)
    }

    /// Stores the answer about a key, which is known from now on.
    fn insert_known(&self, key: Key, entry: Entry) {
        self.others.remove(&key);
        self.known.insert(key, entry);
    }

    /// Stores an answer that does not make a key known. A known key stays known.
    pub(super) fn insert(&self, key: Key, entry: Entry) {
        if self.is_known(&key) { self.known.insert(key, entry) } else { self.others.insert(key, entry) }
    }
}

fn entries(keys: usize) -> Entries {
    let weight = u64::try_from(keys).unwrap_or(u64::MAX);
    Cache::with(keys, weight, UnitWeighter, RandomState::default(), DefaultLifecycle::default())
}

/// See the setters of [`Plans`](super::Plans).
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) lifetimes: Lifetimes,
    pub(super) timeout: Duration,
    pub(super) max_lookups: usize,
    /// The runtime of all look-ups; `None` for the runtime of the request.
    pub(super) runtime: Option<Handle>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) reporter: Arc<Reporter>,
}

impl Settings {
    /// The capacity is not a setting, because the cache is created with it.
    pub(super) const CAPACITY: usize = 100_000;

    /// When a look-up without an answer no longer keeps others from starting. Its own timeout ends a look-up earlier,
    /// unless its runtime is blocked or has no timers. Not shorter than the time between two look-ups of a key.
    fn overdue_after(&self) -> Duration {
        self.timeout.saturating_mul(2).max(self.lifetimes.ttl).max(self.lifetimes.failure_ttl())
    }
}

impl Default for Settings {
    fn default() -> Self {
        let lifetimes =
            Lifetimes { ttl: Duration::from_secs(60), stale: Duration::from_secs(3_600), failure_ttl: None };
        Self {
            lifetimes,
            timeout: Duration::from_secs(5),
            max_lookups: 64,
            runtime: None,
            clock: Arc::new(SystemClock),
            reporter: Arc::default(),
        }
    }
}
