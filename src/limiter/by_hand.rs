//! Changes of a count by hand: bans, and units that no check has charged.

use std::time::{Duration, Instant};

use crate::{
    error::Error,
    key::Key,
    limiter::{handle::Limiter, lease, sharded},
    observe::{CountChangeEvent, Event, Other},
    policy::Policy,
    store::CountChange,
};

impl Limiter {
    /// Bans `key` under `policy` for `duration`: meanwhile every instance that shares the store denies the key,
    /// whatever is available.
    ///
    /// The decision names the end of the ban ([`PolicyDecision::ban`](crate::decision::PolicyDecision::ban)), and its
    /// Retry-After is the end of the ban, or later if the cost does not fit then. Other policies of the same check
    /// charge nothing. A ban changes no count: what was spent stays spent until it has left the window. A second ban
    /// replaces the first. Denials during the ban are not counted, neither as spent units
    /// ([`with_denials_counted`](Policy::with_denials_counted)) nor towards [`ban_after`](Policy::ban_after). A cost of
    /// 0 passes, and [`peek`](Self::peek) shows the ban. A [shadow policy](Policy::with_shadow) reports the ban and
    /// refuses nothing.
    ///
    /// Other instances notice a ban within a second at the latest: at the next check that asks the store.
    ///
    /// * [Holds](Self::hold) that are open stay open and are settled as usual. New ones are denied.
    /// * Under a [lease](Policy::with_lease), this process gives its blocks back first. Other processes spend theirs,
    ///   which last for some milliseconds, and take no new ones.
    /// * Under [shards](Policy::with_shards), all shards are banned.
    /// * The [local fallback](Self::with_local_fallback) of an outage knows nothing of the ban.
    ///
    /// # Errors
    ///
    /// An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if `duration` is shorter than 1 µs or longer
    /// than [`Policy::MAX_WINDOW`]. An [`Error`] if the store does not answer within its deadline, or cannot ban.
    /// Whether the key is banned is then unknown.
    ///
    /// # Cancel safety
    ///
    /// Once the future has been polled, the key may be banned although the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let api = Policy::per_minute("api", 100)?;
    /// limiter.ban("mallory", &api, Duration::from_secs(3_600)).await?;
    /// let decision = limiter.check("mallory", &api, 1).await?;
    /// assert!(!decision.is_allowed() && decision.policies()[0].ban.is_some());
    /// limiter.unban("mallory", &api).await?;
    /// assert!(limiter.check("mallory", &api, 1).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "block")]
    pub async fn ban(&self, key: impl Into<Key>, policy: &Policy, duration: Duration) -> Result<(), Error> {
        self.change_by_hand(key.into(), policy, CountChange::Ban(duration)).await.map(|_| ())
    }

    /// Ends a ban of `key` under `policy` at once: one made [by hand](Self::ban), or one that
    /// [`ban_after`](Policy::ban_after) has made. Returns whether the key was banned.
    ///
    /// The count is what it was before, without what has left the window meanwhile. Denials that were counted towards a
    /// ban are forgotten. To forget what was spent as well, call [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// As [`ban`](Self::ban).
    ///
    /// # Cancel safety
    ///
    /// As [`ban`](Self::ban).
    ///
    /// # Examples
    ///
    /// See [`ban`](Self::ban).
    #[doc(alias = "unblock")]
    pub async fn unban(&self, key: impl Into<Key>, policy: &Policy) -> Result<bool, Error> {
        self.change_by_hand(key.into(), policy, CountChange::Unban).await.map(|ended| ended > 0)
    }

    /// Charges `units` to `key` under `policy`, whether or not they fit: for work that was done already, or as a
    /// penalty.
    ///
    /// Units beyond the limit stay charged: later checks wait until enough has left the window. A key that is banned is
    /// charged too.
    ///
    /// # Errors
    ///
    /// An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if `units` is 0, under a policy with
    /// [shards](Policy::with_shards), and under a [concurrency limit](Policy::concurrent), whose units only a hold
    /// takes. An [`Error`] if the store does not answer within its deadline; [`Error::may_have_charged`] says whether
    /// the units may have been charged.
    ///
    /// # Cancel safety
    ///
    /// Once the future has been polled, the units may be charged although the future is dropped. They are never sent
    /// twice.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let tokens = Policy::per_minute("tokens", 1_000)?;
    /// limiter.record("tenant:3", &tokens, 1_200).await?;
    /// assert!(!limiter.check("tenant:3", &tokens, 1).await?.is_allowed());
    /// assert_eq!(limiter.credit("tenant:3", &tokens, 300).await?, 300);
    /// assert_eq!(limiter.peek("tenant:3", &tokens).await?.available(), Some(100));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "penalty")]
    pub async fn record(&self, key: impl Into<Key>, policy: &Policy, units: u64) -> Result<(), Error> {
        self.change_by_hand(key.into(), policy, CountChange::Record(units)).await.map(|_| ())
    }

    /// Gives up to `units` units back to `key` under `policy`. Returns how many were given back: never more than the
    /// key has spent, so that not more than the capacity becomes available.
    ///
    /// Which units leave depends on the [algorithm](crate::Algorithm):
    ///
    /// | algorithm | units |
    /// | --- | --- |
    /// | sliding window log | the oldest in the window, which would have left first |
    /// | sliding window counter | those of the current window, then those of the previous one, which count for less the older they are |
    /// | fixed window | those of the current window |
    /// | token bucket | the bucket is full again earlier, and not before now |
    ///
    /// Units that are [held](Self::hold) are not given back: release the hold instead. A ban stays.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record).
    ///
    /// # Cancel safety
    ///
    /// As [`record`](Self::record).
    ///
    /// # Examples
    ///
    /// See [`record`](Self::record).
    #[doc(alias = "refund")]
    pub async fn credit(&self, key: impl Into<Key>, policy: &Policy, units: u64) -> Result<u64, Error> {
        self.change_by_hand(key.into(), policy, CountChange::Credit(units)).await
    }

    async fn change_by_hand(&self, key: Key, policy: &Policy, change: CountChange) -> Result<u64, Error> {
        self.core.mistake.found()?;
        policy.validate()?;
        change.validate(policy)?;
        let core = &self.core;
        let observed = core.calls.observer.as_ref().map(|observer| (observer, Instant::now()));
        if let (CountChange::Ban(_), Some(_)) = (change, policy.lease()) {
            lease::give_back(core, &key, policy).await;
        }
        let change_one = |key: Key, policy: Policy| async move { core.calls.change_count(&key, &policy, change).await };
        let changed = sharded::of_each(&key, policy, change_one).await;
        let result = changed.map(|changed| changed.into_iter().max().unwrap_or(0));
        core.queues.forget(&key, policy);
        if let Some((observer, started)) = observed {
            let changed = CountChangeEvent::new(&key, policy, change, &result, started.elapsed());
            observer.on_event(&Event::other(Other::CountChange(changed)));
        }
        result
    }
}
