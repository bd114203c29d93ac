//! Construction of a limiter: its store, its observers and its local fallback. Its end.

use std::sync::Arc;

use crate::calls::Calls;
use crate::error::{ConfigError, FirstMistake};
use crate::fallback::{Fallback, Instances};
use crate::limiter::{acquire::queues::Queues, core::Core, handle::Limiter, hold::SharedHolds, lease};
use crate::observe::{self, Notices, Observer};
use crate::store::{MemoryStore, Store};

impl Limiter {
    /// Creates a limiter over `store`, with the [breaker](crate::failure::BreakerSettings) that [`Store::breaker`]
    /// returns. No I/O happens before the first check.
    ///
    /// The limiter [reports by itself](crate::observe#what-a-limiter-reports-by-itself) when limits are not enforced.
    ///
    /// Create one limiter for a store, and give its clones to all layers and handlers. They share queues, leases,
    /// breakers and the observer. A second limiter of the same store is like another instance of the service: it does
    /// not know the blocks of the first one's [leases](crate::Policy::with_lease), and it takes over the reports of the
    /// store, such as evictions.
    pub fn new(store: impl Store) -> Self {
        let (calls, queues) = (Arc::new(Calls::new(store)), Arc::<Queues>::default());
        let core = Core {
            holds: Arc::new(SharedHolds::new(Arc::clone(&calls), queues.clone())),
            calls,
            queues,
            leases: Arc::default(),
            turns: Arc::default(),
            mistake: FirstMistake::default(),
        };
        Self { core: Arc::new(core) }.with_notices(Some(Notices::default()))
    }

    /// Returns the limiter, or the first mistake in its settings.
    ///
    /// Without `validated`, every call of a limiter with a mistake returns it as an error of kind
    /// [`InvalidCall`](crate::ErrorKind::InvalidCall), which every failure policy refuses, and so does every layer of
    /// it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: 0 instances in [`with_local_fallback`](Self::with_local_fallback), or a bound of 0 in
    /// [`with_max_waiters`](Self::with_max_waiters).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # let (store, instances) = (MemoryStore::new(), 8);
    /// let limiter = Limiter::new(store)
    ///     .with_local_fallback(MemoryStore::new(), instances)
    ///     .validated()?;
    /// # let _ = limiter;
    /// # Ok(())
    /// # }
    /// ```
    pub fn validated(self) -> Result<Self, ConfigError> {
        self.core.mistake.found()?;
        Ok(self)
    }

    /// Adds an observer, which receives the events of this limiter. Observers that were added before stay; see
    /// [`observe`].
    ///
    /// Later clones report to the observer too, earlier clones do not. Events of the store itself, such as batches, go
    /// to the observers of the clone to which an observer was added last.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "tracing")]
    /// # fn main() {
    /// use tollgate::{Limiter, MemoryStore, observe::Tracing};
    ///
    /// let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new());
    /// # }
    /// # #[cfg(not(feature = "tracing"))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn with_observer(mut self, observer: impl Observer) -> Self {
        let calls = self.calls_mut();
        let observer = observe::fan_out(calls.observer.take(), Arc::new(observer));
        let notices = calls.notices.take().map(|_| Notices::new(observer.traces()));
        calls.observer = Some(observer);
        self.with_notices(notices)
    }

    /// Switches off what the limiter [reports by itself](crate::observe#what-a-limiter-reports-by-itself) when limits
    /// are not enforced.
    ///
    /// Observers get the same events as before. Without an observer, nothing reports that limits are not enforced.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore};
    ///
    /// let limiter = Limiter::new(MemoryStore::new()).without_notices();
    /// ```
    #[must_use]
    pub fn without_notices(self) -> Self {
        self.with_notices(None)
    }

    /// Sets what the limiter reports by itself, and passes the listener to everything that reports to it.
    fn with_notices(mut self, notices: Option<Notices>) -> Self {
        let calls = self.calls_mut();
        calls.notices = notices.map(Arc::new);
        calls.listener = match calls.notices.clone() {
            Some(notices) => Some(observe::fan_out(calls.observer.clone(), notices)),
            None => calls.observer.clone(),
        };
        let listener = calls.listener.as_ref();
        calls.store.set_observer(listener);
        if let Some(fallback) = &calls.fallback {
            fallback.set_observer(listener);
        }
        if let Some(breakers) = &calls.breakers {
            breakers.set_observer(listener);
        }
        Arc::make_mut(&mut self.core).connect_holds();
        self
    }

    fn calls_mut(&mut self) -> &mut Calls {
        Arc::make_mut(&mut Arc::make_mut(&mut self.core).calls)
    }

    /// Adds a local fallback. When the store cannot answer, checks that [fail local](crate::FailurePolicy::Local) are
    /// judged by the counts in `memory` against this instance's share of every limit: `limit / instances`, rounded up,
    /// and likewise the burst of a token bucket. `instances` is their number, or `None` if the
    /// [store counts them](#how-a-store-counts-the-instances).
    ///
    /// # What is admitted in total
    ///
    /// While the store is healthy, everything that it admits here is also counted in `memory`, so an outage gives no
    /// client a fresh budget. Take an exact log with limit `L` and `n` instances with the share `s`. Before it was cut
    /// off, instance `i` had `a_i` units admitted by the store in the window. No window then sees more than
    ///
    /// ```text
    /// L + Σ max(0, s - a_i)   <=   2 L + (n - 1)          (s = L / n rounded up, which adds the n - 1)
    /// ```
    ///
    /// While all instances judge by their shares, no window sees more than `L + n - 1`, however long the outage lasts.
    /// More passes around its beginning and its end, for two reasons. Some instances have room in their shares although
    /// others have spent these units. And the store lacks the units of checks that it has not answered and a share has
    /// admitted. A service with more instances than `instances` admits proportionally more; a service with fewer
    /// instances admits less than the limit.
    ///
    /// A cost between the share and the limit is always refused by the fallback.
    ///
    /// # When the store is back
    ///
    /// Units that the fallback has admitted, and that have not left their window, are charged to the store at once.
    /// They are merged by key and policy, up to 10 000 pairs, and charged by ordinary checks as far as they still fit.
    /// The store therefore never counts more than the limit. What does not fit is charged again later, first after
    /// 100 ms, as long as it is in its window: a hold of unknown fate may have taken the room. Denials may last a
    /// little longer, because the units count from the time at which the store is charged. On a cluster, a master that
    /// is still down does not delay the charges of a master that is back.
    ///
    /// Instances detect the end of an outage within a second of each other, or within the longest [probe
    /// interval](crate::failure::BreakerSettings::with_probe_intervals) plus two deadlines if that is longer. During
    /// that time, and while this instance has yet to charge units of the key, checks that fail local also need room in
    /// the instance's share, so that no instance admits units that another instance has spent and not charged yet. The
    /// same is true of the breaker's probes: a check that exceeds the share is refused, and the store is probed with a
    /// check that costs nothing.
    ///
    /// Three things are not charged: checks whose fate is unknown, because they are never sent again; checks of a key
    /// whose value in Redis is unusable; and units of keys that a [full](MemoryStore::when_full) `memory` does not
    /// count, because the units may have left their window.
    ///
    /// # How a store counts the instances
    ///
    /// On a `RedisStore` every instance updates a sorted set, `{prefix}instances`, every five seconds together with its
    /// traffic (more often in the beginning), by an EVAL of TIME, ZADD, ZREMRANGEBYSCORE, PEXPIRE and ZCARD. An
    /// instance counts for one minute after its last request. During an outage, the last number applies. A higher
    /// number applies at once. A lower number applies after one minute of traffic, because a Redis that restarts empty
    /// counts the instances from zero. Until the first number is known, and on a store that counts no instances, checks
    /// that fail local are refused, as by [`FailurePolicy::Closed`](crate::FailurePolicy::Closed).
    ///
    /// 0 instances are a mistake, which [`validated`](Self::validated) returns.
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
    /// let store = RedisStore::open("redis://127.0.0.1:6379")?;
    /// # #[cfg(not(feature = "redis"))]
    /// # let store = MemoryStore::new();
    /// // 8 instances of this service.
    /// let limiter =
    ///     Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
    /// let limit =
    ///     RateLimitLayer::new(limiter, Policy::per_minute("all", 800)?, GlobalKey)
    ///         .fail_local()
    ///         .validated()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "insurance")]
    #[must_use]
    pub fn with_local_fallback(self, memory: MemoryStore, instances: impl Into<Option<u32>>) -> Self {
        let instances = match instances.into() {
            Some(0) => {
                return self.mistaken("0 instances would leave no share; use at least 1, the instance itself");
            }
            Some(instances) => Instances::Given(instances),
            None => {
                let store = Arc::clone(&self.core.calls.store);
                // The first call makes the store count the instances.
                store.instances();
                Instances::Discovered(store)
            }
        };
        self.with_fallback(memory, instances)
    }

    /// Keeps a mistake in place of a setting.
    pub(super) fn mistaken(mut self, message: &'static str) -> Self {
        Arc::make_mut(&mut self.core).mistake.add(ConfigError::new(message));
        self
    }

    fn with_fallback(mut self, memory: MemoryStore, instances: Instances) -> Self {
        let calls = self.calls_mut();
        memory.set_observer(calls.listener.as_ref());
        calls.fallback = Some(Arc::new(Fallback::new(memory, instances, Arc::clone(&calls.store))));
        // Earlier clones have no fallback, and their waiters ask for themselves.
        let core = Arc::make_mut(&mut self.core);
        core.queues = Arc::new(core.queues.anew());
        core.connect_holds();
        self
    }

    /// Gives back the units of all [leases](crate::Policy::with_lease), and waits until the ends of all
    /// [holds](crate::limiter::Hold) have reached the store. Call it before the process ends, after the server has
    /// finished its requests: otherwise the units of their holds stay taken until the time-to-live of these holds has
    /// passed, and then count as the policy says. Later checks go to the store.
    ///
    /// Waits until the store has answered: at most three times its deadline for leases, then at most 5 s for the ends
    /// of holds. It gives up as soon as the store has answered none of them for three deadlines. Blocks that are not
    /// given back, because the store is away or the process is killed, are charged in full after seconds:
    /// [`with_lease`](crate::Policy::with_lease) says when. Other holds end as their policies say. Clones of the
    /// limiter share its leases and holds. Returns at once without leases and holds. Holds whose handles still exist
    /// stay open.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, blocks and holds are given back in the background, as long as the runtime runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let per_tenant =
    ///     Policy::per_second("per-tenant", 1_000_000)?.with_lease(10_000);
    /// for _ in 0..1_000 {
    ///     assert!(limiter.check("tenant:3", &per_tenant, 1).await?.is_allowed());
    /// }
    /// limiter.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) {
        lease::close(&self.core).await;
    }
}

/// A limiter of the store, as [`Limiter::new`] creates it: one for each conversion. Services with several layers create
/// a limiter and clone it.
impl<S: Store> From<S> for Limiter {
    fn from(store: S) -> Self {
        Self::new(store)
    }
}
