//! Peeks at costs, and charges of as much as fits, for callers.

use std::sync::Arc;

use crate::limiter::{check_future::CheckFuture, handle::Limiter};
use crate::{calls::Purpose, check::Check, error::ConfigError, key::Key, policy::Policy};

impl Limiter {
    /// Looks up whether all charges of `check` would pass, and when. Charges nothing.
    ///
    /// The decision is that of [`check_all`](Self::check_all), with the wait for the costs of the check. Open
    /// [holds](Self::hold) and [bans](Policy::ban_after) count. It is never counted as a denial, and observers get no
    /// [decision](crate::observe::Event::decision) of it. Other requests may spend the units before the next check. To
    /// look at one policy without a cost, call [`peek`](Self::peek).
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`]. An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if the store has no
    /// [`peek`](crate::store::Store::peek).
    ///
    /// # Panics
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Check, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let tokens = Policy::per_minute("tokens", 1_000)?;
    /// assert!(limiter.check("alice", &tokens, 600).await?.is_allowed());
    ///
    /// // How long does a prompt of 500 tokens have to wait?
    /// let decision = limiter.peek_all(Check::new("alice", &tokens, 500)).await?;
    /// assert!(!decision.is_allowed());
    /// assert!(decision.retry_after() > Some(Duration::from_secs(59)));
    /// assert_eq!(decision.available(), Some(400));
    /// # Ok(())
    /// # }
    /// ```
    pub fn peek_all(&self, check: Check) -> CheckFuture {
        let accepted = self.core.validate(&check);
        CheckFuture::unusual(Purpose::PEEK_AT_COSTS, Arc::clone(&self.core), check, accepted)
    }

    /// Charges as many of `units` to `key` under `policy` as fit, in one atomic step: all of them, fewer, or none.
    ///
    /// The cost of the decision's policy ([`PolicyDecision::cost`](crate::decision::PolicyDecision::cost)) is the
    /// number of units that were charged. If no unit fits, it is 0, and the decision is the denial of one unit: with
    /// its Retry-After, and counted towards a [ban](Policy::ban_after). Under a [shadow policy](Policy::with_shadow),
    /// the decision is allowed also then.
    ///
    /// Under a [lease](Policy::with_lease), this process gives its blocks back first, within half of the store's
    /// deadline, and asks the store in what is left of it. So it does under a policy of the same count that has neither
    /// a lease nor holds. On a slow network it does not wait for the blocks, and may once charge less than fits. With
    /// [`fail_local`](CheckFuture::fail_local), the share of the instance decides while the store gives no verdict.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`]. An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if `units` is 0, under a
    /// policy with [shards](Policy::with_shards), under a [concurrency limit](Policy::concurrent), and if the store has
    /// no [`charge_up_to`](crate::store::Store::charge_up_to).
    ///
    /// # Panics
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::check`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let emails = Policy::per_hour("emails", 100)?;
    /// assert!(limiter.check("alice", &emails, 70).await?.is_allowed());
    ///
    /// let mut waiting: Vec<u32> = (0..50).collect();
    /// let decision = limiter.check_up_to("alice", &emails, 50).await?;
    /// let sent: Vec<u32> =
    ///     waiting.drain(..decision.policies()[0].cost as usize).collect();
    /// assert_eq!((sent.len(), waiting.len()), (30, 20));
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_up_to(&self, key: impl Into<Key>, policy: &Policy, units: u64) -> CheckFuture {
        let check = Check::new(key, policy, units);
        let accepted = self.core.validate(&check).and_then(|()| check.refuse_holds()).and_then(|()| match units {
            0 => Err(ConfigError::of_policy(policy.name(), "up to 0 units are none; ask for 1 or more")),
            _ if policy.is_sharded() => {
                let message = "its shards have units of their own, so no step charges as many as fit; charge a cost \
                               that fits one shard";
                Err(ConfigError::of_policy(policy.name(), message))
            }
            _ => Ok(()),
        });
        CheckFuture::unusual(Purpose::UP_TO, Arc::clone(&self.core), check, accepted)
    }
}
