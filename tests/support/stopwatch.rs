//! Exact waits in tokio's paused time.

use std::time::{Duration, Instant};

/// No stall of a runtime is shorter: the library takes a timer that is late by up to 3 ms for a healthy one.
const SHORTEST_STALL: Duration = Duration::from_millis(3);
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

    /// Asserts that the wait was `expected`, to the nanosecond unless a busy machine has stalled the test.
    #[track_caller]
    pub fn assert_elapsed(&self, expected: Duration) {
        let waited = self.paused.elapsed();
        let stall = self.longest_stall();
        assert!(
            (expected..=expected + stall).contains(&waited),
            "{waited:?} instead of {expected:?}, with a stall of at most {stall:?}"
        );
    }

    /// The longest time by which a stall may have extended a deadline since the start: 0 unless the machine is busy.
    ///
    /// A deadline does not count the time in which its runtime was stalled. In paused time, a test takes hardly any
    /// real time, so the real time that has passed is an upper bound.
    pub fn longest_stall(&self) -> Duration {
        let real = self.real.elapsed();
        if real < SHORTEST_STALL { Duration::ZERO } else { real + TIMER_RESOLUTION }
    }
}
