//! Rolling out a limit: shadow policies, and the share of the limit at which a key is near it.

use crate::policy::limit::Policy;

impl Policy {
    /// Sets whether the policy is a shadow policy: it counts and reports, and refuses nothing.
    ///
    /// A shadow policy shows what a limit would do before the limit is enforced. Its counts are those that it would
    /// have if it were enforced: a charge that does not fit is not charged, and is reported as one that would have been
    /// denied ([`Decision::would_deny`](crate::Decision::would_deny), observers and metrics). Responses say nothing
    /// about it. [Rolling out a limit](crate::guide::rollout) shows the way from a shadow policy to an
    /// enforced one.
    ///
    /// * In a check of several charges, the enforced policies decide. If they deny the check, nothing is charged. If
    ///   they allow it, each shadow charge that fits is charged too.
    /// * A check under shadow policies alone is always allowed: also if the store gives no verdict, whatever the
    ///   failure policy is, and if the cost is above the limit.
    /// * [`Limiter::acquire`](crate::Limiter::acquire) and [`ThrottleLayer`](crate::ThrottleLayer) never wait for a
    ///   shadow policy.
    /// * Denials that [count](Self::with_denials_counted) and [bans](Self::ban_after) act on the counts of the
    ///   shadow policy alone.
    ///
    /// The setting is no part of what counts belong to. A policy that was a shadow policy and is enforced now denies at
    /// once what does not fit beside the units that it has counted. Instances that enforce the policy and instances
    /// that do not may run side by side. Defaults to `false`, because a limit that is not enforced limits nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let tried = Policy::per_minute("exports", 1)?.with_shadow(true);
    /// assert!(limiter.check("user:17", &tried, 1).await?.is_allowed());
    /// let decision = limiter.check("user:17", &tried, 1).await?;
    /// assert!(decision.is_allowed());
    ///
    /// let enforced = tried.with_shadow(false);
    /// assert!(!limiter.check("user:17", &enforced, 1).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_shadow(self, shadow: bool) -> Self {
        if self.is_shadow() == shadow {
            return self;
        }
        self.change(|d| d.shadow = shadow)
    }

    /// Whether the policy is a shadow policy, which refuses nothing. `false` unless [`with_shadow`](Self::with_shadow)
    /// sets it.
    #[inline]
    pub fn is_shadow(&self) -> bool {
        self.definition().shadow
    }

    /// Sets the share of the limit at which a key is near it, above 0 and at most 1.
    ///
    /// When a request takes what a key has spent to this share of the [capacity](Self::capacity) or above, observers
    /// get one event for this key and window ([event](crate::observe::Event#names) `near_limit`),
    /// and the metrics count it. So a service can warn a customer before the first denial. Without an observer, the
    /// setting has no effect. Defaults to 0.8. `None` turns the event off.
    ///
    /// Another share is a [mistake](Self#mistakes).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let daily = Policy::per_day("daily", 10_000)?.with_near_limit(0.95);
    /// assert!(
    ///     daily.with_near_limit(95.0).validated().is_err(),
    ///     "a share, not percent"
    /// );
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_near_limit(self, share: impl Into<Option<f64>>) -> Self {
        let share = share.into();
        if let Some(share) = share
            && !(share > 0.0 && share <= 1.0)
        {
            return self.mistaken(format_args!(
                "{share} is not a share of the limit; write one above 0 and at most 1, such as 0.8 for 80 %"
            ));
        }
        self.change(|d| d.near_limit = share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_out_of_range_is_an_error_that_contains_it() {
        let policy = Policy::per_minute("p", 10).unwrap();
        let share_of = |policy: &Policy| policy.definition().near_limit;
        assert_eq!((share_of(&policy), share_of(&policy.clone().with_near_limit(None))), (Some(0.8), None));
        for share in [1e-12, 0.01, 0.5, 0.999_999, 1.0] {
            assert_eq!(share_of(&policy.clone().with_near_limit(share)), Some(share));
        }
        for share in [0.0, -0.5, 1.01, 80.0, f64::INFINITY, f64::NAN] {
            let error = policy.clone().with_near_limit(share).validated().unwrap_err();
            let expected = format!("policy \"p\": {share} is not a share of the limit; ");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_shadow_policy_counts_with_the_same_policy_enforced() {
        let policy = Policy::per_minute("p", 10).unwrap();
        assert!(!policy.is_shadow());
        let shadow = policy.clone().with_shadow(true);
        assert!(shadow.is_shadow() && shadow != policy && shadow.counts_with(&policy));
        assert_eq!(shadow.with_shadow(false), policy);
        let shards = policy.with_shards(3).with_shadow(true);
        assert!(shards.shard_policies().iter().all(Policy::is_shadow));
    }
}
