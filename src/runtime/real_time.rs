//! Time that also passes while tokio's clock is paused and while the process stands still.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use super::world::now_us as world_us;

/// A point in real time, which tests that pause or advance tokio's clock do not move. In a simulated world, a point in
/// the world's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealInstant {
    instant: Instant,
    /// The world's time in microseconds.
    world_us: Option<u64>,
}

impl RealInstant {
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), world_us: world_us() }
    }

    pub(crate) fn elapsed(self) -> Duration {
        match (self.world_us, world_us()) {
            (Some(then_us), Some(now_us)) => Duration::from_micros(now_us.saturating_sub(then_us)),
            _ => self.instant.elapsed(),
        }
    }
}

/// Whether tokio's clock stands still, as in a test that has paused it. Takes a microsecond.
pub(crate) fn is_paused() -> bool {
    let (begin, tokio) = (Instant::now(), tokio::time::Instant::now());
    while begin.elapsed() < Duration::from_micros(1) {}
    tokio::time::Instant::now() == tokio
}

/// The wall clock of this machine, which may step.
pub(crate) fn wall_time() -> SystemTime {
    world_us().map_or_else(SystemTime::now, |now_us| UNIX_EPOCH + Duration::from_micros(now_us))
}
