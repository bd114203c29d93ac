//! What a client may do: a limit per window, and how it is counted.

mod ban;
mod definition;
mod source;

use std::{
    any::Any,
    sync::{Arc, OnceLock},
    time::Duration,
};

use self::definition::{Definition, is_token, micros_up};
pub(crate) use self::source::SharedSource;
pub use self::source::{IntoPolicies, Policies, PolicySource};
use crate::{
    error::ConfigError,
    key::{
        Key,
        partition::{PartitionKey, PartitionKeys},
    },
};

/// A quota: `limit` units per `window`, counted by an [`Algorithm`].
///
/// A policy is cheap to clone. Its name appears in headers, problem documents and Redis keys.
///
/// # Changing a policy
///
/// Counts live under the policy's name, algorithm, window and resolution. A new `limit` (or burst) therefore holds at
/// once for what is already counted: lowered, clients that spent more than the new limit wait until enough has left the
/// window; raised, they gain the difference. Old and new processes may run side by side: each applies its own limit to
/// the shared counts. Another window, resolution or algorithm starts a fresh count, so that for one window a client may
/// spend both.
///
/// A bucket's debt is time, which is worth more units at a higher rate. Rejections that [count](Policy::with_count_rejected)
/// take nothing from what others have admitted: a log keeps them as far back as the highest limit that has charged since
/// it was last empty, so after a limit was lowered, the old one bounds its memory until then.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Algorithm, Policy};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_client = Policy::per_minute("per-client", 60)?;
/// let bursts = Policy::per_second("bursts", 100)?.with_algorithm(Algorithm::TokenBucket).with_burst(20)?;
/// let daily = Policy::per_day("daily", 1_000_000)?.with_resolution(Duration::from_secs(86))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Policy(Arc<Shared>);

struct Shared {
    definition: Definition,
    /// A hash of the name and the [form](Policy::form), for look-ups.
    name_hash: u64,
    /// What denials are counted under, if they lead to a ban.
    ban: Option<Policy>,
    /// A value that another module derives from this policy, see [`Policy::derived`].
    derived: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// How units are counted.
///
/// | algorithm | accuracy | state per key | on Redis: bytes | time | Retry-After |
/// | --- | --- | --- | --- | --- | --- |
/// | [`SlidingWindowLog`](Self::SlidingWindowLog) | exact in every window | one record per request in the window | 216, and 11 to 46 a request (12 at 1 000) | 3.9 µs, alone 7.6 | exact |
/// | [`SlidingWindowCounter`](Self::SlidingWindowCounter) | an estimate | two counts | 152 | 2.0 µs, alone 5.0 | of the estimate |
/// | [`FixedWindow`](Self::FixedWindow) | lets 2x through at a boundary | one count | 152 | 1.6 µs, alone 4.7 | the window's end |
/// | [`TokenBucket`](Self::TokenBucket) | a burst, then a steady rate | one number | 152 | 2.5 µs, alone 5.6 | exact |
///
/// The time is Redis' own for one of 64 checks in a call, and for a check alone, at 1 000 requests in the window
/// (`benches/peers`, `lua`, on the machine of [`guide::performance`](crate::guide::performance)).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Remembers every request of the window: never more than `limit` in *any* window, to the microsecond.
    ///
    /// The default, because it is the only one whose limit means what it says. [`Policy::with_resolution`] bounds its
    /// memory for large limits.
    #[default]
    SlidingWindowLog,
    /// Weighs the count of the previous window by its overlap: `floor(previous * overlap) + current`.
    ///
    /// A few dozen bytes whatever the limit. It assumes that the previous window's traffic was even, so a burst may
    /// be counted a little early or late.
    SlidingWindowCounter,
    /// Counts in windows aligned to the clock (the Unix epoch).
    ///
    /// The cheapest and the least strict: a full limit just before a boundary and another just after it both pass, so
    /// up to **twice the limit** fits into one window's length.
    FixedWindow,
    /// Refills `limit` units per window, evenly, up to a [burst](Policy::with_burst) (GCRA).
    ///
    /// For shaping traffic to a rate. Within one window up to `burst + limit` units can pass.
    TokenBucket,
}

impl Policy {
    /// The longest window, 366 days: arithmetic on microseconds stays exact in Lua's doubles.
    pub const MAX_WINDOW: Duration = Duration::from_secs(366 * 86_400);

    /// Creates a policy of `limit` units per `window`.
    ///
    /// The window is counted in microseconds, a fraction of one is rounded up.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the name is not usable as a Structured Field String and Token (RFC 9651), the limit is 0, or
    /// the window is shorter than 1 µs or longer than [`MAX_WINDOW`](Self::MAX_WINDOW).
    pub fn new(name: impl Into<String>, limit: u32, window: Duration) -> Result<Self, ConfigError> {
        let policy = name.into();
        if !is_token(&policy) {
            return Err(ConfigError::InvalidPolicyName { name: policy });
        }
        if limit == 0 {
            return Err(ConfigError::ZeroLimit { policy });
        }
        if window < Duration::from_micros(1) {
            return Err(ConfigError::WindowTooShort { policy, window });
        }
        if window > Self::MAX_WINDOW {
            return Err(ConfigError::WindowTooLong { policy, window });
        }
        let definition = Definition {
            name: policy.into_boxed_str(),
            limit,
            window: micros_up(window),
            algorithm: Algorithm::default(),
            resolution: 1,
            burst: limit,
            count_rejected: false,
            unit: None,
            partition_keys: None,
            ban: None,
            is_ban: false,
        };
        Ok(Self::from(definition))
    }

    /// Creates a policy of `limit` units per second.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`].
    pub fn per_second(name: impl Into<String>, limit: u32) -> Result<Self, ConfigError> {
        Self::new(name, limit, Duration::from_secs(1))
    }

    /// Creates a policy of `limit` units per minute.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`].
    pub fn per_minute(name: impl Into<String>, limit: u32) -> Result<Self, ConfigError> {
        Self::new(name, limit, Duration::from_secs(60))
    }

    /// Creates a policy of `limit` units per hour.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`].
    pub fn per_hour(name: impl Into<String>, limit: u32) -> Result<Self, ConfigError> {
        Self::new(name, limit, Duration::from_secs(3_600))
    }

    /// Creates a policy of `limit` units per 24 hours.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`].
    pub fn per_day(name: impl Into<String>, limit: u32) -> Result<Self, ConfigError> {
        Self::new(name, limit, Duration::from_secs(86_400))
    }

    /// Counts by `algorithm`, with that algorithm's default resolution and burst.
    ///
    /// Defaults to [`Algorithm::SlidingWindowLog`], because it is exact.
    #[must_use]
    pub fn with_algorithm(self, algorithm: Algorithm) -> Self {
        let burst = self.0.definition.limit;
        self.change(|d| (d.algorithm, d.resolution, d.burst) = (algorithm, 1, burst))
    }

    /// Bounds the log's memory: stamps are rounded up to `resolution`, so that at most `window / resolution + 2`
    /// records count, whatever the limit. (A store may keep some that have left the window a little longer.)
    ///
    /// It still never admits too much; units come back at most one resolution late. Defaults to 1 µs, which is exact.
    /// Redis limits a value to 512 MB, unless configured otherwise, so one key's log holds some 33 million requests:
    /// where more may be in a window, set a resolution.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the algorithm is not the log, or the resolution is below 1 µs or above the window.
    pub fn with_resolution(self, resolution: Duration) -> Result<Self, ConfigError> {
        let policy = self.name().to_owned();
        if self.0.definition.algorithm != Algorithm::SlidingWindowLog {
            return Err(ConfigError::ResolutionWithoutLog { policy });
        }
        let window = self.window();
        if resolution < Duration::from_micros(1) || resolution > window {
            return Err(ConfigError::InvalidResolution { policy, resolution, window });
        }
        Ok(self.change(|d| d.resolution = micros_up(resolution)))
    }

    /// Sets how many units a full token bucket holds.
    ///
    /// Defaults to the limit, so that an idle client may spend a whole window's units at once.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the algorithm is not the token bucket, the burst is 0, or refilling it takes longer than
    /// [`MAX_WINDOW`](Self::MAX_WINDOW).
    pub fn with_burst(self, burst: u32) -> Result<Self, ConfigError> {
        let policy = self.name().to_owned();
        if self.0.definition.algorithm != Algorithm::TokenBucket {
            return Err(ConfigError::BurstWithoutTokenBucket { policy });
        }
        if burst == 0 {
            return Err(ConfigError::ZeroBurst { policy });
        }
        if u128::from(burst) * self.window().as_micros() / u128::from(self.limit()) > Self::MAX_WINDOW.as_micros() {
            return Err(ConfigError::BurstTooLarge { policy, burst });
        }
        Ok(self.change(|d| d.burst = burst))
    }

    /// Counts refused requests as well: a client that keeps hammering stays out.
    ///
    /// A cost above the limit is never counted, and neither is a peek. The token bucket empties, but owes nothing.
    /// Defaults to `false`, because a client that waits as told should pass.
    #[must_use]
    pub fn with_count_rejected(self, count_rejected: bool) -> Self {
        self.change(|d| d.count_rejected = count_rejected)
    }

    /// Says what is counted, for clients: `qu` in `RateLimit-Policy` of [`HeaderStyle::Draft11`](crate::HeaderStyle).
    ///
    /// The draft knows `requests`, `content-bytes` and `concurrent-requests`. Changes nothing about the counting: what
    /// a request costs is up to the layer. Defaults to `requests`, which is not sent, for it is the draft's default too.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidUnit`] if the unit is not usable as a Structured Field String and Token, as the name.
    pub fn with_unit(self, unit: impl Into<String>) -> Result<Self, ConfigError> {
        let unit = unit.into();
        if !is_token(&unit) {
            return Err(ConfigError::InvalidUnit { policy: self.name().to_owned(), unit });
        }
        let unit = (unit != "requests").then(|| unit.into_boxed_str());
        Ok(self.change(|d| d.unit = unit))
    }

    /// Tells clients which partition a request was counted in: `pk` in both fields of
    /// [`HeaderStyle::Draft11`](crate::HeaderStyle).
    ///
    /// Defaults to not telling it, because most clients have one partition, and it makes them recognisable.
    #[must_use]
    pub fn with_partition_keys(self, keys: PartitionKeys) -> Self {
        self.change(|d| d.partition_keys = Some(keys))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.definition.name
    }

    /// Units per window.
    pub fn limit(&self) -> u32 {
        self.0.definition.limit
    }

    /// The resolution of a [sliding window log](Algorithm::SlidingWindowLog), 1 µs unless
    /// [set](Self::with_resolution); `None` for the other algorithms.
    pub fn resolution(&self) -> Option<Duration> {
        let is_log = self.algorithm() == Algorithm::SlidingWindowLog;
        is_log.then(|| Duration::from_micros(self.resolution_us()))
    }

    /// The burst of a [token bucket](Algorithm::TokenBucket), the limit unless [set](Self::with_burst); `None` for the
    /// other algorithms.
    pub fn burst(&self) -> Option<u32> {
        (self.algorithm() == Algorithm::TokenBucket).then_some(self.0.definition.burst)
    }

    /// The most that can pass at one instant: the burst of a token bucket, otherwise the limit.
    pub fn capacity(&self) -> u32 {
        match self.0.definition.algorithm {
            Algorithm::TokenBucket => self.0.definition.burst,
            _ => self.0.definition.limit,
        }
    }

    /// The window's length.
    pub fn window(&self) -> Duration {
        Duration::from_micros(self.0.definition.window)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.0.definition.algorithm
    }

    /// Whether refused requests are counted.
    pub fn count_rejected(&self) -> bool {
        self.0.definition.count_rejected
    }

    /// The unit, if it is not requests.
    pub fn unit(&self) -> Option<&str> {
        self.0.definition.unit.as_deref()
    }

    /// What is told of `key`, if anything is.
    pub(crate) fn partition_key(&self, key: &Key) -> Option<PartitionKey> {
        self.0.definition.partition_keys.as_ref().map(|keys| keys.of(key))
    }

    pub(crate) fn window_us(&self) -> u64 {
        self.0.definition.window
    }

    pub(crate) fn resolution_us(&self) -> u64 {
        self.0.definition.resolution
    }

    /// What makes counts incompatible: algorithm, window and resolution.
    pub(crate) fn form(&self) -> (Algorithm, u64, u64) {
        self.0.definition.form()
    }

    /// One instance's part of it, rounded up to whole units: with more instances than units, each may spend one.
    pub(crate) fn share(&self, instances: u32) -> Self {
        self.clone().change(|d| (d.limit, d.burst) = (d.limit.div_ceil(instances), d.burst.div_ceil(instances)))
    }

    /// The same policy with counts of its own, under a name that nobody else can give.
    pub(crate) fn renamed(&self, purpose: &str) -> Self {
        self.clone().change(|d| d.name = format!("{} {purpose}", d.name).into())
    }

    /// Whether both count in one place: the same name and form.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        // Nearly always it is the very same policy.
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.name_hash == other.0.name_hash && self.name() == other.name() && self.form() == other.form())
    }

    /// The same for policies of the same name and form.
    pub(crate) fn name_hash(&self) -> u64 {
        self.0.name_hash
    }

    pub(crate) fn check_cost(&self, cost: u32) -> Result<(), ConfigError> {
        if cost > self.capacity() {
            let policy = self.name().to_owned();
            return Err(ConfigError::CostAboveLimit { policy, cost, limit: self.capacity() });
        }
        Ok(())
    }

    /// A value that depends on this policy alone: computed by `derive` at the first call, then returned from memory.
    ///
    /// The RateLimit fields keep their constant part here. Its type is theirs, so that policies know no HTTP. There is
    /// room for one value: one of another type is computed at each call.
    pub(crate) fn derived<T: Any + Clone + Send + Sync>(&self, derive: impl Fn() -> T) -> T {
        let derived = self.0.derived.get_or_init(|| Box::new(derive()));
        derived.downcast_ref().cloned().unwrap_or_else(derive)
    }

    fn change(self, change: impl FnOnce(&mut Definition)) -> Self {
        let mut definition = self.0.definition.clone();
        change(&mut definition);
        Self::from(definition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_policies_are_errors_that_carry_the_value() {
        for name in ["", "a b", "café", "1st", "say \"hi\"", &"x".repeat(65)] {
            let error = Policy::per_second(name, 1).unwrap_err();
            assert_eq!(error, ConfigError::InvalidPolicyName { name: name.into() });
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
        for name in ["*all", "*", "a*b:c/d"] {
            assert_eq!(Policy::per_second(name, 1).unwrap().name(), name, "a Token (RFC 9651, section 3.3.4)");
        }
        assert!(matches!(Policy::per_second("p", 0), Err(ConfigError::ZeroLimit { .. })));
        for window in [Duration::ZERO, Duration::from_nanos(999)] {
            let error = Policy::new("p", 1, window).unwrap_err();
            assert!(matches!(error, ConfigError::WindowTooShort { window: w, .. } if w == window));
        }
        for window in [Duration::MAX, Policy::MAX_WINDOW + Duration::from_nanos(1)] {
            let error = Policy::new("p", 1, window).unwrap_err();
            assert!(matches!(error, ConfigError::WindowTooLong { window: w, .. } if w == window));
        }
    }

    #[test]
    fn resolution_and_burst_belong_to_their_algorithms() {
        let policy = Policy::per_second("p", 10).unwrap();
        assert!(matches!(policy.clone().with_burst(5), Err(ConfigError::BurstWithoutTokenBucket { .. })));
        for resolution in [Duration::ZERO, Duration::from_millis(1001)] {
            let error = policy.clone().with_resolution(resolution).unwrap_err();
            assert!(matches!(error, ConfigError::InvalidResolution { .. }));
        }
        let bucket = policy.with_algorithm(Algorithm::TokenBucket);
        assert!(matches!(bucket.clone().with_burst(0), Err(ConfigError::ZeroBurst { .. })));
        let yearly = Policy::new("p", 1, Policy::MAX_WINDOW).unwrap().with_algorithm(Algorithm::TokenBucket);
        assert!(matches!(yearly.with_burst(2), Err(ConfigError::BurstTooLarge { burst: 2, .. })));
        assert_eq!(bucket.clone().with_burst(7).unwrap().capacity(), 7);
        let error = bucket.with_resolution(Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error, ConfigError::ResolutionWithoutLog { .. }));
    }
}
