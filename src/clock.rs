//! Where the time comes from.

use std::{
    fmt,
    sync::LazyLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A source of time, in microseconds since the Unix epoch.
///
/// The stores' default clocks are right for production: [`SystemClock`] in memory, the server's `TIME` on Redis.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Microseconds since the Unix epoch.
    fn now_us(&self) -> u64;
}

/// Wall-clock time that never runs backwards within the process.
///
/// The system's time is read once; from then on the monotonic clock moves it, so a step of the system clock neither
/// frees nor freezes anybody.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

static ANCHOR: LazyLock<(Instant, u64)> = LazyLock::new(|| {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    (Instant::now(), micros(since_epoch))
});

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        let (anchor, base) = *ANCHOR;
        base + micros(anchor.elapsed())
    }
}

/// Whole microseconds, rounded down; a duration beyond `u64` counts as the largest one.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A clock that stands still until it is moved, for tests.
///
/// Clones share their time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, MemoryStore};
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::new().with_clock(clock.clone());
/// clock.advance(Duration::from_secs(60));
/// ```
#[cfg(feature = "test-util")]
#[derive(Clone, Debug)]
pub struct ManualClock(std::sync::Arc<std::sync::atomic::AtomicU64>);

#[cfg(feature = "test-util")]
impl ManualClock {
    /// Creates a clock that stands at `now_us` microseconds since the Unix epoch.
    pub fn at_us(now_us: u64) -> Self {
        Self(std::sync::Arc::new(now_us.into()))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), std::sync::atomic::Ordering::SeqCst);
    }

    /// Puts the clock at `now_us`, also backwards.
    pub fn set_us(&self, now_us: u64) {
        self.0.store(now_us, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Where the clocks of tests begin: 2026-01-01 00:00:00 UTC.
#[cfg(feature = "test-util")]
const TEST_EPOCH_US: u64 = 1_767_225_600_000_000;

#[cfg(feature = "test-util")]
impl Default for ManualClock {
    /// Stands at 2026-01-01 00:00:00 UTC.
    fn default() -> Self {
        Self::at_us(TEST_EPOCH_US)
    }
}

#[cfg(feature = "test-util")]
impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// A clock that follows tokio's time, so that a test which pauses or advances that moves the counts with it.
///
/// Shows 2026-01-01 00:00:00 UTC when it is created; create it in the runtime of the test. Where time is not paused, it
/// runs as usual.
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
    /// Creates a clock that shows 2026-01-01 00:00:00 UTC.
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
