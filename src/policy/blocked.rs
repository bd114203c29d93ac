//! Blocked policies, which refuse everything.

use std::time::Duration;

use crate::policy::definition::{Definition, Special};
use crate::{error::ConfigError, policy::limit::Policy};

impl Policy {
    /// Creates a policy that refuses everything: the plan of a suspended account, or of a feature that is switched off.
    ///
    /// A check of any cost, also of 0, is denied without a call of the store, so also while the store is away, whatever
    /// the failure policy is. The decision comes from [`Source::Policy`](crate::decision::Source::Policy) and names no
    /// wait, and nothing is charged under the other policies of the check. The response is 403 without `Retry-After`
    /// and without RateLimit fields ([`Reason::Blocked`](crate::rejection::Reason::Blocked)), because a client that
    /// waits is refused again; in gRPC it is `PERMISSION_DENIED`.
    ///
    /// A blocked policy counts nothing. Its [limit](Self::limit) and its [capacity](Self::capacity) are 0, it has no
    /// window, and [`record`](crate::Limiter::record), [`credit`](crate::Limiter::credit) and
    /// [`ban`](crate::Limiter::ban) are errors. A [shadow policy](Self::with_shadow) that is blocked reports what it
    /// would deny.
    ///
    /// It is a [mistake](Self#mistakes) to set what counts: an algorithm, a burst, a resolution, a ban, holds, shards,
    /// a lease or the share of a near limit. Its opposite is
    /// [`Policies::unlimited`](crate::policy::Policies::unlimited).
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the name is not a `Token` of at most 64 bytes, as for [`new`](Self::new).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, rejection::Reason};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let suspended = Policy::blocked("suspended")?;
    /// let denied =
    ///     limiter.check("mallory", &suspended, 1).await?.into_result().unwrap_err();
    /// assert_eq!((denied.reason(), denied.status().as_u16()), (Reason::Blocked, 403));
    /// assert_eq!(denied.retry_after(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn blocked(name: impl Into<String>) -> Result<Self, ConfigError> {
        // Nothing is counted, so the window is never used.
        let policy = Self::new(name, 1, Duration::from_secs(1))?;
        Ok(policy.change(|d| (d.limit, d.burst, d.near_limit) = (0, Special::unset(0), None)))
    }

    /// Whether the policy refuses everything. No other policy has a limit of 0.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.limit() == 0
    }

    /// The error of a change by hand: there is no count to change.
    pub(crate) fn refuse_change_if_blocked(&self) -> Result<(), ConfigError> {
        if !self.is_blocked() {
            return Ok(());
        }
        Err(ConfigError::of_policy(self.name(), "it is blocked and counts nothing, so there is no count to change"))
    }
}

impl Definition {
    /// A setting of a blocked policy that would have no effect.
    pub(super) fn setting_of_blocked(&self) -> Option<ConfigError> {
        let Self { name, limit, window_us, unit, partition_keys, shadow, mistake, .. } = self.clone();
        let plain = Self { unit, partition_keys, shadow, mistake, ..Self::plain(name, limit, window_us) };
        (limit == 0 && plain != *self).then(|| {
            let message = "it is blocked and counts nothing; leave out every setting but the unit, the partition keys \
                           and `with_shadow`";
            ConfigError::of_policy(&self.name, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        key::partition::PartitionKeys,
        policy::{Algorithm, HoldSettings},
    };

    #[test]
    fn a_blocked_policy_has_no_room_and_no_window() {
        let blocked = Policy::blocked("suspended").unwrap().with_unit("tokens").with_shadow(true);
        let blocked = blocked.with_partition_keys(PartitionKeys::label(|_| Vec::new()));
        assert!(blocked.validate().is_ok() && blocked.is_blocked());
        assert_eq!((blocked.limit(), blocked.capacity(), blocked.window()), (0, 0, None));
        assert_eq!(blocked.share(3).limit(), 0);
        assert!(Policy::blocked("a b").is_err() && Policy::per_second("p", 0).is_err());
    }

    #[test]
    fn a_setting_that_counts_is_a_mistake_of_a_blocked_policy() {
        let hour = Duration::from_secs(3_600);
        let settings: [fn(Policy, Duration) -> Policy; 9] = [
            |p, _| p.with_algorithm(Algorithm::TokenBucket),
            |p, _| p.with_algorithm(Algorithm::TokenBucket).with_burst(5),
            |p, _| p.with_resolution(Duration::from_millis(1)),
            |p, hour| p.ban_after(5, hour),
            |p, _| p.with_holds(HoldSettings::new()),
            |p, _| p.with_shards(2),
            |p, _| p.with_lease(2),
            |p, _| p.with_near_limit(0.5),
            |p, _| p.with_denials_counted(true),
        ];
        for (number, set) in settings.into_iter().enumerate() {
            let error = set(Policy::blocked("suspended").unwrap(), hour).validated().expect_err(&number.to_string());
            assert!(error.to_string().starts_with("policy \"suspended\": it is blocked and counts nothing"), "{error}");
        }
    }
}
