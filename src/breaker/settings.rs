//! When to stop asking a store that does not answer: the settings. The machine is in `circuit`.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// When a [`Limiter`](crate::Limiter) stops asking its store, and how it finds out that the store is back.
///
/// A store that is down costs every request the deadline. After a few of them the circuit **opens**: checks get their
/// error at once, without any I/O, and the [`FailurePolicy`](crate::FailurePolicy) rules. From time to time one real
/// check is let through as a **probe**; nothing is sent in addition, so a store without traffic is left alone. The
/// first answer **closes** the circuit again. A probe that is dropped on the way (its client hung up) is followed by
/// another one.
///
/// An answer is an answer, also one that helps nobody: wrong credentials, missing permissions or a key that holds
/// something else ([`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured),
/// [`ErrorKind::BadKey`](crate::ErrorKind::BadKey)) never open the circuit. Neither does
/// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded): the store answers, only not everything in time. And an error
/// that a store returns as [`Answer::Ready`](crate::store::Answer::Ready) is not counted, because no check has waited for it.
///
/// `RedisStore` has one unless its builder says otherwise; [`MemoryStore`](crate::MemoryStore) needs none. Clones of a
/// [`Limiter`](crate::Limiter) share one.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "redis")]
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// use std::time::Duration;
/// use tollgate::{RedisStore, failure::Breaker};
///
/// let store = RedisStore::builder()
///     .breaker(Breaker::default().with_consecutive_timeouts(2).with_probe_intervals(Duration::from_millis(50), Duration::from_millis(500)))
///     .connect("redis://127.0.0.1:6379")?;
/// let always_asks = RedisStore::builder().breaker(None).connect("redis://127.0.0.1:6379")?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "redis"))]
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub struct Breaker {
    pub(super) failures: u32,
    pub(super) timeouts: u32,
    pub(super) half_of: u32,
    first: Duration,
    pub(super) longest: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 5,
            timeouts: 3,
            half_of: 20,
            first: Duration::from_millis(100),
            longest: Duration::from_millis(500),
        }
    }
}

impl Breaker {
    /// Opens after so many failures in a row; 0 switches this rule off. Defaults to 5: a restart is noticed at once, a
    /// single lost connection is not an outage.
    ///
    /// Checks that were sent before the first of them failed are one wave, which counts once: a connection that breaks
    /// takes all of them with it.
    pub fn with_consecutive_failures(self, in_a_row: u32) -> Self {
        Self { failures: in_a_row, ..self }
    }

    /// Opens after so many timeouts in a row; 0 switches this rule off. Defaults to 3, for each one costs a whole
    /// deadline.
    ///
    /// Checks that were sent before the first of them timed out are one wave, which counts once: it is one stall that
    /// they all met.
    pub fn with_consecutive_timeouts(self, in_a_row: u32) -> Self {
        Self { timeouts: in_a_row, ..self }
    }

    /// Opens when half of the checks within a second fail, timeouts included, if there were at least so many; 0
    /// switches this rule off. Defaults to 20: enough to be no accident, few enough to be there early in a stall under
    /// load. Checks are counted from the first failure on. Here each timeout of a wave counts by itself, and
    /// other failures of a wave count once.
    pub fn with_failure_rate_min_samples(self, at_least: u32) -> Self {
        Self { half_of: at_least, ..self }
    }

    /// Sets when the first probe goes out, and how far apart they grow, doubling, at most. Defaults to 100 ms and
    /// 500 ms: a store that is down is left in peace, and one that is back is noticed within a second of a connection
    /// that can be made.
    ///
    /// Up to a fifth is added at random, so that the instances of a service do not probe in step; the most holds with
    /// it. Both are taken for an hour if they are longer.
    pub fn with_probe_intervals(self, first: Duration, at_most: Duration) -> Self {
        Self { first: first.min(HOUR), longest: at_most.min(HOUR), ..self }
    }

    /// How long after opening, or after the last one, the probe of this round goes out.
    pub(super) fn interval(&self, round: u32) -> Duration {
        let grown = self.first.saturating_mul(1_u32.checked_shl(round).unwrap_or(u32::MAX));
        let base = grown.min(self.longest / 6 * 5);
        base + base / 5 * random_percent() / 100
    }
}

/// Nobody waits longer for a probe, and sums of times do not overflow.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// At least 0, below 100. The standard library's keys are random, and every state has others.
fn random_percent() -> u32 {
    u32::try_from(RandomState::new().hash_one(0_u8) % 100).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_with_jitter_and_stay_below_the_most() {
        for (round, least, most) in [(0, 100, 120), (1, 200, 240), (2, 400, 480), (3, 416, 500), (40, 416, 500)] {
            let drawn: Vec<_> = (0..1_000).map(|_| Breaker::default().interval(round)).collect();
            let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
            assert!(drawn.iter().all(|interval| (least..=most).contains(interval)), "round {round}");
            assert!(drawn.iter().any(|interval| interval != &drawn[0]), "round {round} has no jitter");
        }
    }
}
