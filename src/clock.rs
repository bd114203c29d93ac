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

fn micros(duration: Duration) -> u64 {
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

#[cfg(feature = "test-util")]
impl Default for ManualClock {
    /// Stands at 2026-01-01 00:00:00 UTC.
    fn default() -> Self {
        Self::at_us(1_767_225_600_000_000)
    }
}

#[cfg(feature = "test-util")]
impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}
