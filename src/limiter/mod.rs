//! The product without HTTP.

mod future;
mod guarded;
mod judge;

use std::{fmt, future::poll_fn, sync::Arc, time::Instant};

pub use self::future::CheckFuture;
pub(crate) use self::future::{Purpose, Sent};
use self::guarded::Guarded;
use crate::{
    breaker::{Breakers, CallOutcome},
    check::Check,
    error::{ConfigError, Error},
    fallback::{Fallback, Instances},
    key::Key,
    observe::{self, Notices, Observer, Reset},
    policy::Policy,
    store::{Answer, MemoryStore, Store},
};

/// Judges checks against a store, within its deadline.
///
/// Jobs, consumers and outbound clients call it directly; [`RateLimitLayer`](crate::RateLimitLayer) is a thin skin
/// over it. Clones share the store, so they spend from one budget.
///
/// # Examples
///
/// ```
/// use tollgate::{FailurePolicy, Limiter, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let quota = Policy::per_day("quota", 9_500)?;
///
/// let decision = limiter.check("key1", &quota, 100).await?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.available(), Some(9_400));
///
/// // Or say at the call what a store that cannot answer means.
/// let decision = FailurePolicy::Open.resolve(limiter.check("key1", &quota, 1).await);
/// assert!(decision.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    /// One pointer, because each check that waits has a limiter of its own.
    parts: Arc<Parts>,
}

#[derive(Clone)]
struct Parts {
    store: Arc<dyn Store>,
    observer: Option<Arc<dyn Observer>>,
    /// What the limiter says by itself; `None` if it is quiet.
    notices: Option<Arc<Notices>>,
    /// Receives warnings: the observer, the notices, or both.
    listener: Option<Arc<dyn Observer>>,
    /// `None` for a store that is never away.
    breakers: Option<Arc<Breakers>>,
    fallback: Option<Arc<Fallback>>,
}

impl Limiter {
    /// Creates a limiter over `store`, with the [`Breaker`](crate::failure::Breaker) that the store asks for. No I/O happens
    /// before the first check.
    ///
    /// The limiter [says by itself](crate::observe#what-a-limiter-says-by-itself) when it does not limit.
    pub fn new(store: impl Store) -> Self {
        let breakers = |breaker| Arc::new(Breakers::new(breaker, store.deadline(), store.failure_domains()));
        let breakers = store.breaker().map(breakers);
        let store = Arc::new(store);
        let parts = Parts { store, observer: None, notices: None, listener: None, breakers, fallback: None };
        Self { parts: Arc::new(parts) }.with_notices(Some(Notices::default()))
    }

    /// Tells `observer`, beside those that were set before, what this limiter does; see [`observe`].
    ///
    /// Clones made from here on tell it too, those that exist already do not. What only the store knows of, its
    /// batches, goes to the observers of the limiter that was given one last.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Observer) -> Self {
        let parts = Arc::make_mut(&mut self.parts);
        let observer = observe::both(parts.observer.take(), Arc::new(observer));
        let notices = parts.notices.take().map(|_| Notices::new(observer.traces()));
        parts.observer = Some(observer);
        self.with_notices(notices)
    }

    /// Switches off what the limiter [says by itself](crate::observe#what-a-limiter-says-by-itself) when it does not limit.
    ///
    /// Observers hear all that they heard before. Without one, nothing tells that limits are not enforced.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore};
    ///
    /// let limiter = Limiter::new(MemoryStore::new()).quiet();
    /// ```
    #[must_use]
    pub fn quiet(self) -> Self {
        self.with_notices(None)
    }

    /// Sets what the limiter says by itself, and hands the listener on to all that report to it.
    fn with_notices(mut self, notices: Option<Notices>) -> Self {
        let parts = Arc::make_mut(&mut self.parts);
        parts.notices = notices.map(Arc::new);
        parts.listener = match parts.notices.clone() {
            Some(notices) => Some(observe::both(parts.observer.clone(), notices)),
            None => parts.observer.clone(),
        };
        let listener = parts.listener.as_ref();
        parts.store.set_observer(listener);
        if let Some(fallback) = &parts.fallback {
            fallback.set_observer(listener);
        }
        if let Some(breakers) = &parts.breakers {
            breakers.set_observer(listener);
        }
        self
    }

    /// Adds a local fallback: when the store cannot answer, checks that [fail local](crate::FailurePolicy::Local) are judged by
    /// the counts in `memory`, against this instance's share of every limit: `limit / instances`, rounded up, and
    /// likewise a token bucket's burst.
    ///
    /// # What is admitted in all
    ///
    /// While the store is well, all that it admits here is also counted in `memory`, so an outage gives nobody a fresh
    /// budget. Of an exact log with limit `L`, `n` instances with the share `s`, of which instance `i` had `a_i` units
    /// admitted by the store in the window, and `A` units admitted by the store in all, no window sees more than
    ///
    /// ```text
    /// A + Σ max(0, s - a_i)   <=   2 L - s + (n - 1)          (s = L / n rounded up, which is where n - 1 comes from)
    /// ```
    ///
    /// and if load is spread evenly no more than `L + n - 1`, in an outage of any length. What the fallback admits beyond
    /// `L` is what other instances had used of its share before. A service that has more instances than you say
    /// admits more, in proportion; one that has fewer admits less than it might.
    ///
    /// # When the store is back
    ///
    /// What was admitted meanwhile, and has not left its window, is charged to the store at once: merged by key and policy,
    /// for at most 10 000 of them, by ordinary checks for as much as still fits. So it never makes the store count more
    /// than the limit. The store may deny for a little longer, because a debit counts from the time it is made. On a
    /// cluster, a master that is still away does not hold up what one that is back is charged. Instances notice within
    /// a second of each other, or as far apart as the breaker's [probes](crate::failure::Breaker::with_probe_intervals) and two deadlines if
    /// that is longer. For that time, checks that fail local also need room in the instance's share: no instance admits
    /// what another one has still to charge. Three things are not charged: checks whose fate is unknown, because those
    /// are never sent again; what was admitted for a key whose count Redis cannot use; and what a `memory` that is
    /// [full](MemoryStore::when_full) has no count of, because it may have left its window.
    ///
    /// A cost between the share and the limit is always refused by the fallback.
    ///
    /// # Errors
    ///
    /// [`ConfigError::ZeroInstances`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    /// # #[cfg(feature = "redis")]
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # #[cfg(feature = "redis")]
    /// let store = RedisStore::connect("redis://127.0.0.1:6379")?;
    /// # #[cfg(not(feature = "redis"))]
    /// # let store = MemoryStore::new();
    /// let limiter = Limiter::new(store).with_local(MemoryStore::new(), 8)?; // 8 instances of this service
    /// let limit = RateLimitLayer::new(limiter, Policy::per_minute("all", 800)?, GlobalKey).fail_local()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_local(self, memory: MemoryStore, instances: u32) -> Result<Self, ConfigError> {
        if instances == 0 {
            return Err(ConfigError::ZeroInstances);
        }
        Ok(self.with_fallback(memory, Instances::Given(instances)))
    }

    /// [`with_local`](Self::with_local), with as many instances as the store has seen of late.
    ///
    /// On a `RedisStore` every instance touches a sorted set, `{prefix}instances`, every five seconds on the back of its
    /// traffic (sooner in the beginning), with TIME, ZADD, ZREMRANGEBYSCORE, PEXPIRE and ZCARD. It counts for a minute
    /// after its last request: longer than that without one, it is not expected to take part in the next outage. An
    /// outage is met with the number that was known before. A higher number holds at once. A lower one holds when it
    /// has been lower for a minute of traffic, because a Redis that comes back empty counts the instances anew. Until
    /// there is a number, checks that fail local are refused, as by [`FailurePolicy::Closed`](crate::FailurePolicy::Closed); so they are on a store
    /// that never tells.
    #[must_use]
    pub fn with_local_discovered(self, memory: MemoryStore) -> Self {
        let store = Arc::clone(&self.parts.store);
        // From here on it is wanted.
        store.instances();
        self.with_fallback(memory, Instances::Learnt(store))
    }

    fn with_fallback(mut self, memory: MemoryStore, instances: Instances) -> Self {
        let parts = Arc::make_mut(&mut self.parts);
        memory.set_observer(parts.listener.as_ref());
        parts.fallback = Some(Arc::new(Fallback::new(memory, instances, Arc::clone(&parts.store))));
        self
    }

    /// Whether the [`Breaker`](crate::failure::Breaker) keeps checks from the store right now; of a cluster, from a part of it at
    /// least.
    pub fn is_breaker_open(&self) -> bool {
        self.breakers().is_some_and(|breakers| breakers.is_open())
    }

    /// Waits until checks would be judged, and tells why if they would not. For start-up and health checks.
    ///
    /// On a `RedisStore` it connects, calls the script on each master, and tries whether it may write. It charges
    /// nothing, does not ask the [`Breaker`](crate::failure::Breaker), and leaves the connections open for the first checks. It
    /// waits up to 5 s for dials and answers that are slow. A server that refuses a connection, a login or a command is
    /// an error at once. A [`MemoryStore`] is ready at once.
    ///
    /// # Errors
    ///
    /// The [`Error`] that checks would get, with the store's own words.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. What has been dialled stays.
    ///
    /// # Examples
    ///
    /// At the start, and in the handler of a health check:
    ///
    /// ```
    /// use axum::{Router, http::StatusCode, routing::get};
    /// use tollgate::{Limiter, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let store = MemoryStore::new();
    /// let limiter = Limiter::new(store);
    /// if let Err(error) = limiter.ready().await {
    ///     eprintln!("limits are not enforced: {error}");
    /// }
    /// let health = move || async move {
    ///     match limiter.ready().await {
    ///         Ok(()) => StatusCode::OK,
    ///         Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    ///     }
    /// };
    /// let app: Router = Router::new().route("/readyz", get(health));
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<(), Error> {
        match self.parts.store.ready() {
            Answer::Ready(result) => result,
            Answer::Pending(result) => result.await,
        }
    }

    /// Charges `cost` units to `key` under `policy`, if they fit.
    ///
    /// # Errors
    ///
    /// The future resolves to an [`Error`] if the store gives no verdict within its deadline.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the first poll. Dropped later, the check may have been charged without a verdict; it is
    /// never sent twice.
    pub fn check(&self, key: impl Into<Key>, policy: &Policy, cost: u32) -> CheckFuture {
        self.check_all(Check::new(key, policy, cost))
    }

    /// Pays all charges of `check`, or none.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::check`].
    #[inline]
    pub fn check_all(&self, check: Check) -> CheckFuture {
        CheckFuture::unsent(Purpose::Check, self.clone(), check)
    }

    /// Tells where `key` stands under `policy`, and whether a cost of 1 would pass. Charges nothing.
    ///
    /// The decision [is allowed](crate::Decision::is_allowed) if a unit is available. Otherwise the policy is violated and
    /// [`retry_after`](crate::Decision::retry_after) is the time until the next unit comes back, or until a
    /// [ban](Policy::ban_after) ends. A peek is never counted as a rejection and never leads to a ban, and observers
    /// get no [decision](crate::observe::Observer::on_decision) of it. Other requests may spend the unit before yours:
    /// to charge, use [`check`](Self::check), which also lets a cost of 0 pass, whatever is spent.
    ///
    /// A `RedisStore` is asked each time. Where it shows room, denials of the key that this process
    /// [remembers](crate::decision::Source::DenyCache) end: another process may have reset the key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let exports = Policy::per_day("exports", 1)?;
    /// limiter.check("alice", &exports, 1).await?;
    ///
    /// // For a page that shows what is left.
    /// let decision = limiter.peek("alice", &exports).await?;
    /// assert_eq!(decision.available(), Some(0));
    /// assert!(!decision.is_allowed() && decision.retry_after().is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub fn peek(&self, key: impl Into<Key>, policy: &Policy) -> CheckFuture {
        CheckFuture::unsent(Purpose::Peek, self.clone(), Check::new(key, policy, 0))
    }

    /// Forgets what `key` has spent under `policy`, and lifts a [ban](Policy::ban_after). Returns whether there was
    /// anything to forget: a count or a ban in the store, or a count of the [local fallback](Self::with_local).
    ///
    /// `false` most often means that this is not the key that requests are charged to, or that the policy counts
    /// elsewhere: counts belong to the policy's name, algorithm, window and resolution. A `RedisStore` keeps a count
    /// for a little longer than its window, and answers `true` until it is gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let login = Policy::per_minute("login", 5)?;
    /// limiter.check("alice", &login, 5).await?;
    /// assert!(limiter.reset("alice", &login).await?);
    /// assert!(!limiter.reset("Alice", &login).await?, "another key, or nothing spent");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Take the key from the extractor that charges it, because extractors group addresses and hash tokens:
    /// [`PeerIp::key_of`](crate::PeerIp::key_of), [`ClientIp::key_of`](crate::ClientIp::key_of),
    /// [`ApiKey::key_of`](crate::ApiKey::key_of), [`HeaderKey::key_of`](crate::HeaderKey::key_of). The key of a tuple is
    /// [`Key::join`] of its parts' keys, in their order.
    ///
    /// # Errors
    ///
    /// [`Error`] if the store does not answer within its deadline; whether it forgot is then unknown.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the key may be reset although the future was dropped.
    pub async fn reset(&self, key: impl Into<Key>, policy: &Policy) -> Result<bool, Error> {
        let key = key.into();
        let observed = self.parts.observer.as_ref().map(|observer| (observer, Instant::now()));
        let found = self.fallback().is_some_and(|fallback| fallback.forget(&key, policy));
        let result = self.forget(&key, policy).await.map(|in_store| in_store || found);
        if let Some((observer, started)) = observed {
            observer.on_reset(&Reset::new(&key, policy, &result, started.elapsed()));
        }
        result
    }

    async fn forget(&self, key: &Key, policy: &Policy) -> Result<bool, Error> {
        match self.parts.store.reset(key, policy) {
            Answer::Ready(result) => result,
            Answer::Pending(future) => {
                let mut guarded = Guarded::new(future, CallOutcome::of);
                poll_fn(|cx| guarded.poll(self, |_| self.admit(Some(key)), cx)).await
            }
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { store, breakers, fallback, .. } = &*self.parts;
        f.debug_struct("Limiter")
            .field("store", store)
            .field("breakers", breakers)
            .field("fallback", fallback)
            .finish_non_exhaustive()
    }
}
