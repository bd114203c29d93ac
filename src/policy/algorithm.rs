//! The algorithms by which a policy can count, and durations as whole microseconds, in which they count.

use std::time::Duration;

use crate::error::in_words;

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
/// let calendar_quota = Policy::per_day("daily", 10_000)?.with_algorithm(Algorithm::FixedWindow);
/// let steady_rate = Policy::per_second("rate", 100)?.with_algorithm(Algorithm::TokenBucket).with_burst(20);
/// # let _ = (calendar_quota, steady_rate.validated()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Keeps a record of every request of the window: never more than `limit` in *any* window, to the microsecond.
    ///
    /// The default, because it is the only algorithm that enforces the limit in every window.
    /// [`Policy::with_resolution`](crate::Policy::with_resolution) bounds its memory for large limits.
    #[default]
    SlidingWindowLog,
    /// Weighs the count of the previous window by its overlap: `floor(previous * overlap) + current`.
    ///
    /// Needs the same memory for every limit. The estimate assumes that the previous window's traffic was even, so a
    /// burst may be counted a little early or late.
    SlidingWindowCounter,
    /// Counts in windows that are aligned to the clock (the Unix epoch), or bounded by a [`Calendar`](crate::Calendar).
    ///
    /// The cheapest and least strict algorithm. A full limit just before a boundary and another one just after it both
    /// pass, so up to **twice the limit** fits into one window's length.
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
