//! Exact waits in tokio's paused time.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// No stall of a runtime is shorter: the library takes a timer that is late by up to 3 ms for a healthy one.
const SHORTEST_STALL: Duration = Duration::from_millis(3);
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);
/// The library extends a deadline that begins right after a stall by 2 ms, to read what has arrived meanwhile.
const CATCH_UP: Duration = Duration::from_millis(2);

thread_local! {
    /// When the test started its latest stopwatch.
    static LATEST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Measures a wait in tokio's paused time, and the real time that passes meanwhile.
pub struct Stopwatch {
    paused: tokio::time::Instant,
    real: Instant,
    /// When the stopwatch before this one was started.
    before: Option<Instant>,
}

impl Stopwatch {
    pub fn start() -> Self {
        let real = Instant::now();
        Self { paused: tokio::time::Instant::now(), real, before: LATEST.replace(Some(real)) }
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
        let stalled_before = self.before.is_some_and(|before| self.real - before >= SHORTEST_STALL);
        match stalled_before {
            _ if real >= SHORTEST_STALL => real + CATCH_UP + TIMER_RESOLUTION,
            true => CATCH_UP + TIMER_RESOLUTION,
            false => Duration::ZERO,
        }
    }
}
