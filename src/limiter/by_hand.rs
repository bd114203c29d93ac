//! Changes of a count by hand: bans, and what changes of units have in common.

use std::time::{Duration, Instant};

use crate::limiter::{handle::Limiter, lease, sharded, units};
use crate::observe::{CountChangeEvent, Event, Other};
use crate::{error::Error, key::Key, policy::Policy, store::CountChange};

impl Limiter {
    /// Bans `key` under `policy` for `duration`: meanwhile every instance that shares the store denies the key,
    /// whatever is available.
    ///
    /// The decision names the end of the ban ([`PolicyDecision::ban`](crate::decision::PolicyDecision::ban)), and its
    /// Retry-After is the end of the ban, or later if the cost does not fit then. Other policies of the same check
    /// charge nothing. A ban changes no count: what was spent stays spent until it has left the window. A second ban
    /// replaces the first. Denials during the ban are not counted, neither as spent units
    /// ([`with_denials_counted`](Policy::with_denials_counted)) nor towards [`ban_after`](Policy::ban_after). A layer
    /// refuses every request of the key, also those that cost nothing; a check outside of a layer with a cost of 0
    /// passes, and [`peek`](Self::peek) shows the ban. A [shadow policy](Policy::with_shadow) reports the ban and
    /// refuses nothing.
    ///
    /// Other instances notice a ban within a second at the latest: at the next check that asks the store.
    ///
    /// * [Holds](Self::hold) that are open stay open and are settled as usual. New ones are denied.
    /// * Under a [lease](Policy::with_lease), this limiter gives its blocks back before the ban, and afterwards those
    ///   that checks have taken during the call. Each may take a deadline more. Other processes take no new blocks, and
    ///   spend those that they have, for at most 8 s.
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
    /// Once the future has been polled, the key may be banned although the future is dropped. Under a lease, blocks
    /// that checks took during the call may then still be spent.
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
    /// [`ban_after`](Policy::ban_after) has made, also in the [local fallback](Self::with_local_fallback) of this
    /// process. Returns whether the key was banned.
    ///
    /// The count is what it was before, without what has left the window meanwhile. Denials that were counted towards a
    /// ban are forgotten, and so is the last ban, if bans [grow](Policy::growing_to). To forget what was spent as well,
    /// call [`reset`](Self::reset).
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

    pub(super) async fn change_by_hand(&self, key: Key, policy: &Policy, change: CountChange) -> Result<u64, Error> {
        self.core.mistake.found()?;
        policy.validate()?;
        policy.refuse_change_if_blocked()?;
        change.validate(policy)?;
        let core = &self.core;
        let observed = core.calls.observer.as_ref().map(|observer| (observer, Instant::now()));
        let fallback = core.calls.fallback.as_ref().filter(|_| change == CountChange::Unban);
        let has_ended_here = fallback.is_some_and(|fallback| fallback.unban(&key, policy));
        let changed = async {
            match change {
                CountChange::Record(units) => units::record(&core.calls, &key, policy, units).await,
                CountChange::Credit(units) => units::credit(&core.calls, &key, policy, units).await,
                CountChange::Ban(_) | CountChange::Unban => {
                    let change_one =
                        |key: Key, policy: Policy| async move { core.calls.change_count(&key, &policy, change).await };
                    let changed = sharded::of_each(&key, policy, change_one).await;
                    changed.map(|changed| changed.into_iter().max().unwrap_or(0).max(has_ended_here.into()))
                }
            }
        };
        let result = match change {
            CountChange::Ban(_) => lease::change_without_blocks(core, &key, policy, changed).await,
            CountChange::Credit(_) => {
                // What was spent of blocks is charged first, so that it can be given back.
                lease::give_back(core, &key, policy, core.calls.store.deadline()).await;
                changed.await
            }
            CountChange::Record(_) | CountChange::Unban => changed.await,
        };
        core.queues.forget(&key, policy);
        if let Some((observer, started)) = observed {
            let changed = CountChangeEvent::new(&key, policy, change, &result, started.elapsed());
            observer.on_event(&Event::other(Other::CountChange(changed)));
        }
        result
    }
}
