//! Clocks: the sources of time for stores.
//!
//! Windows need a time that does not jump. The defaults are right for production: a `RedisStore` uses the server's
//! `TIME`, so that all instances agree; a [`MemoryStore`](crate::MemoryStore) uses [`SystemClock`], which never runs
//! backwards. Tests replace the clock instead of sleeping.
//!
//! # Rules
//!
//! 1. A [`Clock`] returns microseconds since the Unix epoch.
//! 2. The store reads the clock for each check, under the lock of the count.
//! 3. A clock should not run backwards. If it does, the time of a count stands still until the clock has caught up.
//!
//! # The default
//!
//! ```
//! use tollgate::MemoryStore;
//!
//! let store = MemoryStore::new(); // with a SystemClock
//! ```
//!
//! # Customised
//!
//! A clock that is ahead by a fixed offset:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{MemoryStore, clock::{Clock, SystemClock}};
//!
//! #[derive(Debug)]
//! struct Ahead(Duration);
//!
//! impl Clock for Ahead {
//!     fn now_us(&self) -> u64 {
//!         SystemClock.now_us() + self.0.as_micros() as u64
//!     }
//! }
//!
//! let store = MemoryStore::new().with_clock(Ahead(Duration::from_secs(3_600)));
//! ```
//!
//! With feature `test-util`, `ManualClock` stands still until a test moves it, and `TokioClock` follows tokio's paused
//! time.

use std::time::{Duration, UNIX_EPOCH};
use std::{fmt, sync::LazyLock};

use crate::runtime::real_time::{RealInstant, wall_time, world_us};

/// A source of time, in microseconds since the Unix epoch.
///
/// # Examples
///
/// See [the module's page](self).
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Microseconds since the Unix epoch.
    ///
    /// A store calls this method while it holds a lock, so it must not wait, and must not use a limiter.
    fn now_us(&self) -> u64;
}

/// Wall-clock time that never runs backwards within the process.
///
/// Reads the system clock once and then advances with the monotonic clock, so a step of the system clock neither frees
/// nor freezes any count.
///
/// # Examples
///
/// ```
/// use tollgate::clock::{Clock, SystemClock};
///
/// let before = SystemClock.now_us();
/// assert!(SystemClock.now_us() >= before);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

static ANCHOR: LazyLock<(RealInstant, u64)> = LazyLock::new(|| (RealInstant::now(), wall_time_us()));

/// The wall clock of this machine. It may step.
pub(crate) fn wall_time_us() -> u64 {
    micros(wall_time().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        world_us().unwrap_or_else(|| {
            let (anchor, base) = *ANCHOR;
            base + micros(anchor.elapsed())
        })
    }
}

/// Whole microseconds, rounded down. A duration beyond `u64` becomes the largest value.
pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}

/// A duration without its part of a microsecond. Random parts of times are whole microseconds, as all other times are:
/// a simulated world compares times of several runtimes exactly, as long as none has smaller parts.
pub(crate) fn whole_micros(duration: Duration) -> Duration {
    Duration::from_micros(micros(duration))
}

/// A clock that stands still until it is moved, for tests.
///
/// Clones share their time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, ManualClock, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::default();
/// let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
/// let policy = Policy::per_minute("emails", 1)?;
/// assert!(limiter.check("user:17", &policy, 1).await?.is_allowed());
/// assert!(!limiter.check("user:17", &policy, 1).await?.is_allowed());
///
/// clock.advance(Duration::from_secs(60));
/// assert!(limiter.check("user:17", &policy, 1).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "test-util")]
#[derive(Clone, Debug)]
pub struct ManualClock(std::sync::Arc<std::sync::atomic::AtomicU64>);

#[cfg(feature = "test-util")]
impl ManualClock {
    /// Moves the clock forward by `by`, without fractions of a microsecond.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), std::sync::atomic::Ordering::SeqCst);
    }

    /// Sets the clock to `now_us` microseconds since the Unix epoch, which may be earlier than its current time.
    pub fn set_us(&self, now_us: u64) {
        self.0.store(now_us, std::sync::atomic::Ordering::SeqCst);
    }
}

/// The time at which the clocks for tests start: 2026-01-01 00:00:00 UTC.
#[cfg(feature = "test-util")]
const TEST_EPOCH_US: u64 = 1_767_225_600_000_000;

#[cfg(feature = "test-util")]
impl Default for ManualClock {
    /// Creates a clock that stands at 2026-01-01 00:00:00 UTC.
    fn default() -> Self {
        Self(std::sync::Arc::new(TEST_EPOCH_US.into()))
    }
}

#[cfg(feature = "test-util")]
impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// A clock that follows tokio's time, so that a test which pauses or advances tokio's time moves the counts with it.
///
/// Starts at 2026-01-01 00:00:00 UTC. Create the clock in the runtime of the test. While tokio's time is not paused,
/// the clock runs as usual.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, MemoryStore, Policy, clock::TokioClock};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] // in a test: #[tokio::test(start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new()));
/// let policy = Policy::per_minute("emails", 1)?;
/// assert!(limiter.check("user:17", &policy, 1).await?.is_allowed());
///
/// tokio::time::sleep(Duration::from_secs(59)).await; // passes at once
/// assert!(!limiter.check("user:17", &policy, 1).await?.is_allowed());
///
/// tokio::time::advance(Duration::from_secs(1)).await;
/// assert!(limiter.check("user:17", &policy, 1).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "test-util")]
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    created: tokio::time::Instant,
}

#[cfg(feature = "test-util")]
impl TokioClock {
    /// Creates a clock that starts at 2026-01-01 00:00:00 UTC.
    pub fn new() -> Self {
        Self { created: tokio::time::Instant::now() }
    }
}

#[cfg(feature = "test-util")]
impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "test-util")]
impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        TEST_EPOCH_US.saturating_add(micros(self.created.elapsed()))
    }
}
