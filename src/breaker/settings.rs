//! The settings of the circuit breaker. Its states are in `machine`.

use std::time::Duration;

use crate::{clock::whole_micros, runtime::random};

/// The settings of the circuit breaker: when a [`Limiter`](crate::Limiter) stops asking its store, and how it detects
/// that the store is back.
///
/// A store that is down costs every request the deadline. After a few failures the breaker **opens**: checks fail at
/// once, without I/O, and the [`FailurePolicy`](crate::FailurePolicy) decides. From time to time, one check of the
/// application is sent as a **probe**. The breaker makes no checks itself, so a store without traffic gets no probes.
/// The outage may end meanwhile. So when the longest interval has passed since a probe was due, all checks are sent,
/// until the first of them is answered or fails. The first answer to a probe **closes** the breaker. If a probe is
/// dropped before its answer, for example because its client hung up, another check becomes the probe.
///
/// Only errors that a probe could heal open the breaker: [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) and
/// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline). Wrong credentials and missing permissions
/// ([`ErrorKind::StoreMisconfigured`](crate::ErrorKind::StoreMisconfigured)) and unusable keys
/// ([`ErrorKind::BadKey`](crate::ErrorKind::BadKey)) count as answers.
/// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded) does not count, because the store is healthy. An error that
/// a store returns as [`Answer::Ready`](crate::store::Answer::Ready) does not count either, because no check has waited
/// for it.
///
/// `RedisStore` has a breaker unless its builder switches it off. [`MemoryStore`](crate::MemoryStore) needs none.
/// Clones of a [`Limiter`](crate::Limiter) share one breaker; a Redis Cluster has 64,
/// each for 256 neighbouring slots.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "redis")]
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// use std::time::Duration;
/// use tollgate::{RedisStore, failure::BreakerSettings};
///
/// let breaker = BreakerSettings::default()
///     .with_consecutive_timeouts(2)
///     .with_probe_intervals(
///         Duration::from_millis(50),
///         Duration::from_millis(500),
///     );
/// let store =
///     RedisStore::builder().breaker(breaker).open("redis://127.0.0.1:6379")?;
///
/// let always_asks =
///     RedisStore::builder().breaker(None).open("redis://127.0.0.1:6379")?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "redis"))]
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub struct BreakerSettings {
    pub(super) consecutive_failures: u32,
    pub(super) consecutive_timeouts: u32,
    pub(super) failure_rate_min_samples: u32,
    first_probe_interval: Duration,
    pub(super) longest_probe_interval: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            consecutive_timeouts: 3,
            failure_rate_min_samples: 20,
            first_probe_interval: Duration::from_millis(100),
            longest_probe_interval: Duration::from_millis(500),
        }
    }
}

impl BreakerSettings {
    /// Opens after this many failures in a row. 0 switches the rule off.
    ///
    /// Defaults to 5: a restart of the store is detected at once, and a single lost connection is not an outage. A
    /// broken connection fails all checks in flight, which count as one failure.
    pub fn with_consecutive_failures(self, failures: u32) -> Self {
        Self { consecutive_failures: failures, ..self }
    }

    /// Opens after this many timeouts in a row. 0 switches the rule off.
    ///
    /// Defaults to 3, because each timeout costs a whole deadline. Checks that were in flight when one of them timed
    /// out met the same stall, and count as one timeout.
    pub fn with_consecutive_timeouts(self, timeouts: u32) -> Self {
        Self { consecutive_timeouts: timeouts, ..self }
    }

    /// Opens when at least half of the checks within one second fail, if there were at least `checks` of them. 0
    /// switches the rule off.
    ///
    /// Defaults to 20: enough checks to rule out an accident, few enough to detect a stall under load early. Checks are
    /// counted from the first failure on. Under this rule every timeout counts, also of checks that were in flight
    /// together. Other failures of checks that were in flight together count once.
    pub fn with_failure_rate_min_samples(self, checks: u32) -> Self {
        Self { failure_rate_min_samples: checks, ..self }
    }

    /// Sets the time from opening to the first probe, and the longest time between two probes. Intervals double in
    /// between.
    ///
    /// Defaults to 100 ms and 500 ms: a store that is down gets few probes, and a store that is back is detected within
    /// a second. Each interval is longer by up to a fifth at random, within `longest`, so that the instances of a
    /// service do not probe at the same time. Both intervals are cut to one hour.
    pub fn with_probe_intervals(self, first: Duration, longest: Duration) -> Self {
        Self { first_probe_interval: first.min(HOUR), longest_probe_interval: longest.min(HOUR), ..self }
    }

    /// The time from opening, or from the last probe, to the probe of this round, with jitter.
    pub(super) fn probe_interval(&self, round: u32) -> Duration {
        let grown = self.first_probe_interval.saturating_mul(1_u32.checked_shl(round).unwrap_or(u32::MAX));
        let base = grown.min(self.longest_probe_interval / 6 * 5);
        whole_micros(base + base / 5 * random_percent() / 100)
    }
}

/// The longest probe interval. It also keeps sums of times from overflowing.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// A number from 0 to 99.
fn random_percent() -> u32 {
    u32::try_from(random::number() % 100).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_with_jitter_up_to_the_longest_one() {
        for (round, least, most) in [(0, 100, 120), (1, 200, 240), (2, 400, 480), (3, 416, 500), (40, 416, 500)] {
            let drawn: Vec<_> = (0..1_000).map(|_| BreakerSettings::default().probe_interval(round)).collect();
            let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
            assert!(drawn.iter().all(|interval| (least..=most).contains(interval)), "round {round}");
            assert!(drawn.iter().any(|interval| interval != &drawn[0]), "round {round} has no jitter");
        }
        let [first, longest] = [10, 60].map(Duration::from_millis);
        let faster = BreakerSettings::default().with_probe_intervals(first, longest);
        for (round, range) in [(0, 10..=12), (3, 50..=60)] {
            assert!(range.contains(&faster.probe_interval(round).as_millis()), "round {round}");
        }
    }
}
