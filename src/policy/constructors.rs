//! The constructors of a policy. A wrong name, limit or window is an error at once.

use std::time::Duration;

use crate::{
    error::ConfigError,
    policy::{
        definition::{Definition, is_token},
        limit::Policy,
        micros::micros_up,
        near_units::NEAR_LIMIT,
    },
};

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
    /// assert!(Policy::new("per client", 500, Duration::from_secs(300)).is_err(), "a name has no blanks");
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
