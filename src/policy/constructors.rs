//! The constructors of a policy, also of concurrency limits. A wrong name, limit or window is an error at once.

use std::time::Duration;

use crate::error::ConfigError;
use crate::policy::definition::{Definition, NEAR_LIMIT, is_token};
use crate::policy::{holds::HoldSettings, limit::Policy, micros_up};

impl Policy {
    /// The longest window, 366 days: arithmetic on microseconds stays exact in Lua's doubles.
    pub const MAX_WINDOW: Duration = Duration::from_secs(366 * 86_400);

    /// The largest limit, burst or block of a lease, 2^40 units (1 099 511 627 776): enough for a terabyte per window.
    /// Arithmetic on units stays exact in Lua's doubles. A larger cost is valid: it never fits.
    pub const MAX_LIMIT: u64 = 1 << 40;

    /// Creates a policy of `limit` units per `window`.
    ///
    /// The window is counted in microseconds; a fraction of a microsecond is rounded up.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the name is not usable as a Structured Field String and Token (RFC 9651), the limit is 0
    /// or above [`MAX_LIMIT`](Self::MAX_LIMIT), or the window is shorter than 1 µs or longer than
    /// [`MAX_WINDOW`](Self::MAX_WINDOW).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policy = Policy::new("per-client", 500, Duration::from_secs(300))?;
    /// assert!(
    ///     Policy::new("per client", 500, Duration::from_secs(300)).is_err(),
    ///     "a name has no blanks"
    /// );
    /// # let _ = policy;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(name: impl Into<String>, limit: u64, window: Duration) -> Result<Self, ConfigError> {
        let policy = name.into();
        if !is_token(&policy) {
            return Err(ConfigError::invalid_policy_name(&policy));
        }
        if limit == 0 {
            return Err(ConfigError::of_policy(&policy, "a limit of 0 lets nothing through; use 1 or more"));
        }
        if limit > Self::MAX_LIMIT {
            let message = format!("a limit of {limit} is too large; use at most {}, which is 2^40", Self::MAX_LIMIT);
            return Err(ConfigError::of_policy(&policy, message));
        }
        let wrong = |how| ConfigError::of_policy(&policy, format!("a window of {window:?} is too {how}"));
        if window < Duration::from_micros(1) {
            return Err(wrong("short; use at least 1 µs"));
        }
        if window > Self::MAX_WINDOW {
            return Err(wrong("long; use at most 366 days"));
        }
        let plain = Definition::plain(policy.into_boxed_str(), limit, micros_up(window));
        Ok(Self::from(Definition { near_limit: Some(NEAR_LIMIT), ..plain }))
    }

    /// Creates a policy of `limit` units per second.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`].
    pub fn per_second(name: impl Into<String>, limit: u64) -> Result<Self, ConfigError> {
        Self::new(name, limit, Duration::from_secs(1))
    }

    /// Creates a policy of `limit` units per minute.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`].
    pub fn per_minute(name: impl Into<String>, limit: u64) -> Result<Self, ConfigError> {
        Self::new(name, limit, Duration::from_secs(60))
    }

    /// Creates a policy of `limit` units per hour.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`].
    pub fn per_hour(name: impl Into<String>, limit: u64) -> Result<Self, ConfigError> {
        Self::new(name, limit, Duration::from_secs(3_600))
    }

    /// Creates a policy of `limit` units per 24 hours.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`].
    pub fn per_day(name: impl Into<String>, limit: u64) -> Result<Self, ConfigError> {
        Self::new(name, limit, Duration::from_secs(86_400))
    }
}

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
    /// [`with_unsettled_released`](HoldSettings::with_unsettled_released) says. [`algorithm`](Self::algorithm)
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
    /// let policies = [
    ///     Policy::concurrent("uploads", 3)?,
    ///     Policy::per_day("uploads-per-day", 100)?,
    /// ];
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     policies,
    ///     PeerIp::new(),
    /// )
    /// .validated()?;
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
