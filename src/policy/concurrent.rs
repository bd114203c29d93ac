//! Concurrency limits: how many units may be held at once.

use std::time::Duration;

use crate::{
    error::ConfigError,
    policy::{holds::HoldSettings, limit::Policy},
};

impl Policy {
    /// Creates a concurrency limit: a key may hold at most `limit` units at once, in all processes together.
    ///
    /// A layer holds the cost of each request, one slot unless [`with_cost`](crate::RateLimitLayer::with_cost) sets
    /// another, until the response body has ended, failed or been dropped. Jobs hold a slot through
    /// [`Limiter::hold`](crate::Limiter::hold). Nothing is ever charged: a slot is free as soon as it is given back,
    /// and a settlement with any number of units gives it back. A plain [`check`](crate::Limiter::check) is an error,
    /// because it would give nothing back.
    ///
    /// Clients see `qu="concurrent-requests"` and no window. Retry-After of a denial is the [typical
    /// duration](HoldSettings::with_typical_duration), 1 s by default, because a slot may become free at any time.
    ///
    /// # Time-to-live
    ///
    /// While a slot is held, its process renews it in the background, three times in each
    /// [time-to-live](HoldSettings::with_ttl), 60 s by default. If the process dies, its slots are free after the
    /// time-to-live, by the store's clock, and not before. A process that is suspended for longer than that loses its
    /// slots too, although their work may go on when it wakes: others may then hold the same slots, and the process
    /// does not take them back. Set a longer time-to-live through [`with_holds`](Self::with_holds) if that must not
    /// happen.
    ///
    /// # Other settings
    ///
    /// [`with_shadow`](Self::with_shadow), [`with_unit`](Self::with_unit), [`with_partition_keys`] and the durations of
    /// [`with_holds`](Self::with_holds) apply. A slot that is not settled is always released, whatever
    /// [`with_unsettled`](HoldSettings::with_unsettled) says. [`algorithm`](Self::algorithm)
    /// and [`with_denials_counted`](Self::with_denials_counted) have no meaning.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`], for the name and the limit.
    ///
    /// # Examples
    ///
    /// Three uploads of each client at once, and a hundred a day, in one check:
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies = [Policy::concurrent("uploads", 3)?, Policy::per_day("uploads-per-day", 100)?];
    /// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policies, PeerIp::new()).validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`with_partition_keys`]: Self::with_partition_keys
    #[doc(alias = "concurrency")]
    pub fn concurrent(name: impl Into<String>, limit: u64) -> Result<Self, ConfigError> {
        // Nothing is charged, so the window is never used.
        let policy = Self::new(name, limit, Duration::from_secs(1))?;
        let holds = Some(HoldSettings::new().with_unsettled_released(true));
        let unit = Some("concurrent-requests".into());
        Ok(policy.change(|d| (d.is_concurrent, d.holds, d.unit, d.near_limit) = (true, holds, unit, None)))
    }

    /// Whether the policy is a concurrency limit, made by [`concurrent`](Self::concurrent).
    #[inline]
    pub(crate) fn is_concurrent(&self) -> bool {
        self.definition().is_concurrent
    }
}
