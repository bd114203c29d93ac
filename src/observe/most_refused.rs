//! The keys that are refused most.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, fmt, hash::BuildHasher, mem, time::Duration};

use crate::clock::{Clock, SystemClock, micros};
use crate::observe::{Event, EventKind, Fingerprint, ObservedRequest, Observer};
use crate::observe::{check_event::ObservedCharge, request::StoredRequest};
use crate::{key::Key, policy::Policy, runtime::random::RandomState};

/// Lists the keys that limits refuse most, by their fingerprints, with the policy and the route.
///
/// Counts refusals by a policy: requests and checks that a policy denies. A request that two policies deny is counted
/// under both. Requests that are refused because the store is away, or without a check, are not counted. Units do not
/// matter: a refusal counts as one, whatever its cost.
///
/// # What is counted
///
/// The list covers the current period and the one before, so the last ten to twenty minutes by default
/// ([`with_period`](Self::with_period)).
///
/// # Memory and accuracy
///
/// Counters are kept for at most 1 000 pairs of a key and a policy ([`with_capacity`](Self::with_capacity)) in each of
/// the two periods, by the algorithm of Misra and Gries ("Finding repeated elements", 1982). Up to that many pairs, the
/// counts are exact. With more, a count may be too low by at most the number of refusals divided by the capacity, and a
/// pair with more refusals than that is always listed, however many keys a client makes up. [`RefusedKey`] has both
/// bounds.
///
/// # Cost
///
/// As with every observer, each check is timed and copied. Beyond that, an allowed check costs a branch, and a refused
/// one a look-up under a lock.
///
/// # Examples
///
/// As a page for operators. Serve it where clients cannot see it:
///
/// ```
/// use std::sync::Arc;
///
/// use axum::{Router, extract::State, routing::get};
/// use tollgate::{
///     GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
///     observe::MostRefused,
/// };
/// # use http::Request;
/// # use tower::ServiceExt;
///
/// async fn refused(State(refused): State<Arc<MostRefused>>) -> String {
///     refused.top(20).iter().map(|key| format!("{key}\n")).collect()
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let most_refused = Arc::new(MostRefused::new());
/// let limiter =
///     Limiter::new(MemoryStore::new()).with_observer(Arc::clone(&most_refused));
/// let limit =
///     RateLimitLayer::new(limiter, Policy::per_minute("all", 1)?, GlobalKey);
/// let app = Router::new().route("/search", get(|| async {})).layer(limit);
/// let internal = Router::new()
///     .route("/refused", get(refused))
///     .with_state(Arc::clone(&most_refused));
/// # let _: Router = internal;
/// # for _ in 0..3 {
/// #     app.clone().oneshot(Request::get("/search").body(axum::body::Body::empty())?).await?;
/// # }
/// # let line = most_refused.top(1)[0].to_string();
/// # assert!(line.starts_with("2 refusals policy=\"all\" key=") && line.ends_with(" GET /search"), "{line}");
/// # Ok(())
/// # }
/// ```
pub struct MostRefused {
    capacity: usize,
    period_us: u64,
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    periods: Mutex<Periods>,
}

/// A key that a policy has refused. See [`MostRefused::top`].
///
/// Its `Display` is a line for logs: `480 refusals policy="per-client" key=_YV7qj_yBCJkNRv0uWtufg GET /search`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefusedKey {
    /// The fingerprint of the key.
    pub fingerprint: Fingerprint,
    /// The policy that has refused it.
    pub policy: Policy,
    /// The smallest number of refusals. Exact if it is equal to [`at_most`](Self::at_most).
    pub at_least: u64,
    /// The largest number of refusals.
    pub at_most: u64,
    /// The method of the latest refused request; `None` if no layer has sent the check.
    method: Option<&'static str>,
    /// The route of the latest refused request.
    route: Option<String>,
}

#[derive(Default)]
struct Periods {
    /// The start of the current period, in microseconds by the clock.
    since_us: u64,
    current: Counters,
    previous: Counters,
}

/// The counters of a period, by the hash of key and policy.
#[derive(Default)]
struct Counters {
    counters: HashMap<u64, Counter>,
    /// How often all counters were lowered, which is what a count may lack.
    lowered: u64,
}

/// A counter of Misra and Gries. It contains the key, because its fingerprint takes longer than a count.
struct Counter {
    key: Key,
    policy: Policy,
    count: u64,
    request: Option<StoredRequest>,
}

impl MostRefused {
    /// Creates an observer with 1 000 counters and a period of ten minutes.
    pub fn new() -> Self {
        Self {
            capacity: 1_000,
            period_us: 600_000_000,
            clock: Arc::new(SystemClock),
            hasher: RandomState::default(),
            periods: Mutex::default(),
        }
    }

    /// Sets how many pairs of a key and a policy are counted in a period, at least 1. A counter takes about 150 bytes
    /// and its route.
    #[must_use]
    pub fn with_capacity(self, capacity: usize) -> Self {
        Self { capacity: capacity.max(1), ..self }
    }

    /// Sets the period: [`top`](Self::top) lists the refusals of the current period and the one before.
    #[must_use]
    pub fn with_period(self, period: Duration) -> Self {
        Self { period_us: micros(period).max(1), ..self }
    }

    /// The `most` keys that are refused most, the most refused first.
    pub fn top(&self, most: usize) -> Vec<RefusedKey> {
        let mut keys: Vec<RefusedKey> = {
            let periods = self.periods();
            let Periods { current, previous, .. } = &*periods;
            let lowered = current.lowered + previous.lowered;
            let earlier = |hash| previous.counters.get(hash).map_or(0, |counter| counter.count);
            let ended = previous.counters.iter().filter(|(hash, _)| !current.counters.contains_key(*hash));
            let counted = current.counters.iter().map(|(hash, counter)| (counter, counter.count + earlier(hash)));
            let counted = counted.chain(ended.map(|(_, counter)| (counter, counter.count)));
            let mut counted: Vec<_> = counted.collect();
            counted.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
            counted.truncate(most);
            counted.into_iter().map(|(counter, count)| RefusedKey::new(counter, count, lowered)).collect()
        };
        // Equal counts are listed in the same order each time.
        keys.sort_by(|a, b| b.at_least.cmp(&a.at_least).then_with(|| a.policy.name().cmp(b.policy.name())));
        keys
    }

    fn count(&self, charge: &ObservedCharge<'_>, request: Option<ObservedRequest<'_>>) {
        let hash = self.hasher.hash_one((charge.key.0, charge.policy.name_hash()));
        self.periods().current.count(hash, charge, request, self.capacity);
    }

    /// The periods, after those that have ended are left behind.
    fn periods(&self) -> MutexGuard<'_, Periods> {
        let now_us = self.clock.now_us();
        // A panic under the lock can lose a count, so a poisoned lock is usable.
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        // If the period has not begun yet, the clock was put back, and a new period starts.
        let age_us = now_us.checked_sub(periods.since_us);
        if age_us.is_none_or(|age_us| age_us >= self.period_us) {
            let ended = mem::take(&mut periods.current);
            let is_recent = age_us.is_none_or(|age_us| age_us / 2 < self.period_us);
            periods.previous = if is_recent { ended } else { Counters::default() };
            periods.since_us = now_us;
        }
        periods
    }
}

impl Counters {
    fn count(&mut self, hash: u64, charge: &ObservedCharge<'_>, request: Option<ObservedRequest<'_>>, capacity: usize) {
        let is_full = self.counters.len() >= capacity;
        match self.counters.get_mut(&hash) {
            Some(counter) => {
                counter.count += 1;
                if counter.request.as_ref().map(StoredRequest::get) != request {
                    counter.request = request.map(ObservedRequest::to_stored);
                }
            }
            // Each round takes a unit from every counter, so it needs as many refusals before it as it visits counters.
            None if is_full => {
                self.lowered += 1;
                self.counters.retain(|_, counter| {
                    counter.count -= 1;
                    counter.count > 0
                });
            }
            None => {
                let (key, policy) = (charge.key.0.clone(), charge.policy.clone());
                let request = request.map(ObservedRequest::to_stored);
                self.counters.insert(hash, Counter { key, policy, count: 1, request });
            }
        }
    }
}

impl RefusedKey {
    fn new(counter: &Counter, count: u64, lowered: u64) -> Self {
        let request = counter.request.as_ref().map(StoredRequest::get);
        Self {
            fingerprint: Fingerprint::of(&counter.key),
            policy: counter.policy.clone(),
            at_least: count,
            at_most: count + lowered,
            method: request.map(|request| request.method),
            route: request.and_then(|request| request.route).map(str::to_owned),
        }
    }
}

impl Observer for MostRefused {
    fn on_event(&self, event: &Event<'_>) {
        let EventKind::Decision(decided) = &event.0 else { return };
        if decided.decision.is_allowed() {
            return;
        }
        for charge in decided.charges().filter(|charge| charge.violated) {
            self.count(&charge, decided.request());
        }
    }
}

impl Default for MostRefused {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MostRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = Duration::from_micros(self.period_us);
        f.debug_struct("MostRefused").field("capacity", &self.capacity).field("period", &period).finish_non_exhaustive()
    }
}

impl fmt::Display for RefusedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fingerprint, policy, at_least, at_most, method, route } = self;
        write!(f, "{at_least}")?;
        if at_most > at_least {
            write!(f, " to {at_most}")?;
        }
        let refusals = if *at_most == 1 { "refusal" } else { "refusals" };
        write!(f, " {refusals} policy={:?} key={fingerprint}", policy.name())?;
        match method {
            Some(method) => write!(f, " {method} {}", route.as_deref().unwrap_or("unmatched")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Limiter, MemoryStore};

    /// A time in seconds that the test sets.
    #[derive(Clone, Debug)]
    struct SetClock(Arc<AtomicU64>);

    impl Clock for SetClock {
        fn now_us(&self) -> u64 {
            self.0.load(Ordering::Relaxed) * 1_000_000
        }
    }

    #[test]
    fn the_list_forgets_refusals_after_two_periods() {
        let clock = SetClock(Arc::new(AtomicU64::new(1_767_225_600)));
        let list = MostRefused { clock: Arc::new(clock.clone()), ..MostRefused::new() };
        let list = Arc::new(list.with_period(Duration::from_secs(60)));
        let limiter = Limiter::new(MemoryStore::new()).with_observer(Arc::clone(&list));
        let policy = Policy::per_minute("p", 1).unwrap();
        let refuse = |key: &str, times: u32| {
            for _ in 0..times {
                // A cost above the limit never passes.
                assert!(!limiter.try_check(key, &policy, 2).unwrap().is_allowed());
            }
        };
        let pass = |seconds: u64| clock.0.fetch_add(seconds, Ordering::Relaxed);
        let at_least = || list.top(10).iter().map(|key| key.at_least).collect::<Vec<_>>();
        refuse("alice", 5);
        pass(60);
        refuse("alice", 2);
        refuse("bob", 3);
        assert_eq!(at_least(), [7, 3], "the current period and the one before");
        pass(60);
        assert_eq!(at_least(), [3, 2]);
        pass(120);
        assert!(at_least().is_empty());
        for (seconds, listed) in [(119, &[4][..]), (120, &[])] {
            refuse("carol", 4);
            pass(seconds);
            assert_eq!(at_least(), listed, "after {seconds} s");
        }
        // A clock that is put back stops nothing.
        refuse("alice", 1);
        clock.0.store(1, Ordering::Relaxed);
        refuse("alice", 1);
        assert_eq!(at_least(), [2]);
    }

    #[test]
    fn an_upper_bound_has_what_a_full_list_has_left_out_in_both_periods() {
        let counters = |count, lowered| {
            let policy = Policy::per_minute("p", 1).unwrap();
            let counter = Counter { key: Key::from("alice"), policy, count, request: None };
            Counters { counters: HashMap::from([(7, counter)]), lowered }
        };
        let periods = Periods { since_us: SystemClock.now_us(), current: counters(2, 1), previous: counters(3, 4) };
        let list = MostRefused { periods: Mutex::new(periods), ..MostRefused::new() };
        assert_eq!(list.top(1).iter().map(|key| (key.at_least, key.at_most)).collect::<Vec<_>>(), [(5, 10)]);
    }
}
