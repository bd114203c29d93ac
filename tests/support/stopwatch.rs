//! Exact waits in tokio's paused time.

use std::time::{Duration, Instant};

const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Measures a wait in tokio's paused time, and the real time that passes meanwhile.
pub struct Stopwatch {
    paused: tokio::time::Instant,
    real: Instant,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { paused: tokio::time::Instant::now(), real: Instant::now() }
    }

    /// Asserts that the wait was `expected`. A deadline does not count the time in which the runtime was stalled, so a wait
    /// may be longer by the real time that has passed, rounded up to the millisecond that timers resolve.
    #[track_caller]
    pub fn assert_elapsed(&self, expected: Duration) {
        let (waited, real) = (self.paused.elapsed(), self.real.elapsed());
        assert!(waited >= expected, "{waited:?} instead of {expected:?}");
        assert!(
            waited <= expected + real + TIMER_RESOLUTION,
            "{waited:?} instead of {expected:?}, in {real:?} of real time"
        );
    }
}
