//! Policies: how many units a key may spend in a window, and how they are counted.
//!
//! A limit of 60 requests a minute does not say where a minute begins, what a unit is, or what happens to a client that
//! ignores the limit. A [`Policy`] defines all three: by its algorithm, its unit and its ban.
//!
//! # Rules
//!
//! 1. A policy has a name, a limit and a window, which has a length or is bounded by a [`Calendar`]. The name appears
//!    in headers, problem documents, metrics and Redis keys.
//! 2. Counts belong to the policy's name, algorithm, window or calendar, resolution and number of shards. Policies that
//!    agree in these share their counts.
//! 3. A denied request changes no count, unless the policy [counts denials](Policy::with_denials_counted) or
//!    [bans](Policy::ban_after).
//! 4. A [shadow policy](Policy::with_shadow) counts and reports, and refuses nothing. It shares its counts with the
//!    same policy enforced.
//! 5. A policy [with holds](Policy::with_holds) counts open holds as spent.
//! 6. A constructor returns a [`ConfigError`](crate::ConfigError) if the limit cannot work. A policy keeps the first
//!    [mistake](Policy#mistakes) of its setters, and whatever uses the policy reports it.
//!
//! # The default
//!
//! Sixty units in any 60 seconds, exact to the microsecond:
//!
//! ```
//! use tollgate::Policy;
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let per_client = Policy::per_minute("per-client", 60)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Customised
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Algorithm, Policy, policy::HoldSettings};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! // 100 requests a second on average, at most 20 at once.
//! let rate = Policy::per_second("rate", 100)?
//!     .with_algorithm(Algorithm::TokenBucket)
//!     .with_burst(20);
//! // 100 MB a day, counted in bytes, with at most about 1 000 records per key.
//! let upload = Policy::per_day("upload", 100_000_000)?
//!     .with_unit("content-bytes")
//!     .with_resolution(Duration::from_secs(86));
//! // Counts and reports what it would deny, before it is enforced.
//! let exports = Policy::per_hour("exports", 20)?.with_shadow(true);
//! // Ten denials within ten minutes lock the key out for ten minutes.
//! let login =
//!     Policy::per_minute("login", 5)?.ban_after(10, Duration::from_secs(600));
//! // Tokens of a model, whose number is known afterwards.
//! let tokens =
//!     Policy::per_minute("tokens", 100_000)?.with_holds(HoldSettings::new());
//! # for policy in [rate, upload, exports, login, tokens] {
//! #     policy.validated()?;
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! Policies that depend on the request, such as plans, come from a [`PolicySource`]. `plans::Plans` (feature `plans`)
//! is one that looks policies up asynchronously.

mod ban_growth;
mod bans;
mod blocked;
mod calendar;
mod constructors;
mod definition;
mod first_of;
mod holding;
mod holds;
mod lease;
mod limit;
mod mistakes;
mod rollout;
mod settings;
mod source;
pub(crate) mod units;

use std::time::Duration;

use crate::error::in_words;

#[cfg(feature = "redis")]
pub(crate) use self::calendar::CalendarWindow;
#[cfg(feature = "plans")]
pub(crate) use self::source::IntoPolicies;
pub(crate) use self::{
    ban_growth::BanGrowth,
    first_of::{validate_alternatives, validate_beside_alternatives},
    source::{KnownPolicies, SharedSource, known_policies},
};
pub use self::{
    calendar::{Calendar, Weekday},
    first_of::FirstOf,
    holds::HoldSettings,
    limit::Policy,
    source::{Policies, PolicySource, from_fn},
};

/// An algorithm: how a policy counts units.
///
/// | algorithm | accuracy | state per key | on Redis: bytes | time | Retry-After |
/// | --- | --- | --- | --- | --- | --- |
/// | [`SlidingWindowLog`](Self::SlidingWindowLog) | exact in every window | one record per request in the window | 296, plus 11 to 33 a request (14 at 1 000) | 2.3 µs, alone 5.9 | exact |
/// | [`SlidingWindowCounter`](Self::SlidingWindowCounter) | an estimate | two counts | 152 | 1.4 µs, alone 4.1 | of the estimate |
/// | [`FixedWindow`](Self::FixedWindow) | lets 2x through at a boundary | one count | 152 | 1.2 µs, alone 4.0 | the window's end |
/// | [`TokenBucket`](Self::TokenBucket) | a burst, then a steady rate | one number | 152 | 1.4 µs, alone 4.8 | exact |
///
/// The time is the execution time in Redis for one of 64 checks in a call, and for a check alone, at 1 000 requests in
/// the window (`benches/peers`, `lua`, on the machine of [`guide::performance`](crate::guide::performance)).
///
/// As text: `log`, `counter`, `fixed`, `token-bucket`.
///
/// # Examples
///
/// ```
/// use tollgate::{Algorithm, Policy};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let exact = Policy::per_minute("per-client", 60)?;
/// assert_eq!(exact.algorithm(), Algorithm::SlidingWindowLog);
///
/// let cheapest =
///     Policy::per_minute("pages", 600)?.with_algorithm(Algorithm::FixedWindow);
/// let steady_rate = Policy::per_second("rate", 100)?
///     .with_algorithm(Algorithm::TokenBucket)
///     .with_burst(20);
/// # let _ = (cheapest, steady_rate.validated()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Keeps a record of every request of the window: never more than `limit` in *any* window, to the microsecond.
    ///
    /// The default, because it is the only algorithm that enforces the limit in every window.
    /// [`Policy::with_resolution`] bounds its memory for large limits.
    #[default]
    SlidingWindowLog,
    /// Weighs the count of the previous window by its overlap: `floor(previous * overlap) + current`.
    ///
    /// Needs the same memory for every limit. The estimate assumes that the previous window's traffic was even, so a
    /// burst may be counted a little early or late.
    SlidingWindowCounter,
    /// Counts in windows that are aligned to the clock (the Unix epoch), or bounded by a [`Calendar`].
    ///
    /// The cheapest and least strict algorithm. A full limit just before a boundary and another one just after it both
    /// pass, so up to **twice the limit** fits into one window's length. A window of seven days begins on a Thursday in
    /// UTC, as the epoch did. For days, weeks and months of a calendar, use [`Policy::calendar`].
    FixedWindow,
    /// Refills `limit` units per window, evenly, up to a [burst](crate::Policy::with_burst) (GCRA).
    ///
    /// Use it to shape traffic to a rate. Within one window up to `burst + limit` units can pass.
    TokenBucket,
}

impl Algorithm {
    /// The words of `algorithm` in a file of limits.
    pub(crate) const WORDS: [(&'static str, Self); 4] = [
        ("log", Self::SlidingWindowLog),
        ("counter", Self::SlidingWindowCounter),
        ("fixed", Self::FixedWindow),
        ("token-bucket", Self::TokenBucket),
    ];
}

in_words!(Algorithm, "algorithm");

/// Whole microseconds, rounded up.
pub(crate) fn micros_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}
