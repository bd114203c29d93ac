//! Test servers and networks, and the support code shared with the tests that need no server.
#![allow(dead_code, missing_debug_implementations, unreachable_pub, unused_imports, clippy::unwrap_used)]

pub mod authority;
pub mod cluster;
pub mod judge;
pub mod link;
pub mod ports;
pub mod proxy;
pub mod redis_server;
pub mod sentinel;
#[path = "../../support/mod.rs"]
mod shared;
pub mod windows;

use std::io::{self, Write};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{cell::Cell, iter, thread};

pub use shared::*;
use tollgate::{RedisStore, store::RedisStoreBuilder};

/// A builder whose checks wait for Redis longer than any machine takes, for tests that are not about deadlines.
pub fn patient() -> RedisStoreBuilder {
    const LONG: Duration = Duration::from_secs(10);
    RedisStore::builder().deadline(LONG).first_dial_deadline(LONG)
}

/// Like [`RedisStore::open`], with the deadlines of [`patient`].
pub fn connect(url: &str) -> RedisStore {
    patient().open(url).unwrap()
}

/// Polls until `reached` returns true, for at most a minute. `what` names the awaited state in the panic message.
pub fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        // A sentinel that was stopped for two seconds stays passive for thirty (TILT mode).
        assert!(start.elapsed() < Duration::from_secs(60), "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs one load at a time, because two loads would saturate two cores.
pub fn exclusively<T>(run: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// Whether this run is `tests/run --all` or `tests/run --long`: with every failure policy, and with histories of a
/// million requests.
pub fn is_thorough() -> bool {
    std::env::var_os("TOLLGATE_TESTS").is_some_and(|tests| tests == "all")
}

/// Whether this run asserts times and rates, as `tests/run --long` does. The other runs print them: tests run side by
/// side, and a machine that is busy takes the cores away for tens of milliseconds, which no limiter can make up for.
pub fn asserts_times() -> bool {
    static ASSERTS: LazyLock<bool> = LazyLock::new(|| std::env::var_os("TOLLGATE_TIMES").is_some());
    *ASSERTS
}

/// Runs one load at a time if times are asserted.
pub fn undisturbed<T>(run: impl FnOnce() -> T) -> T {
    if asserts_times() { exclusively(run) } else { run() }
}

/// Runs something whose times and rates have bounds. A run that misses them returns its figures. Only
/// [runs that assert times](asserts_times) fail if none of three meets its bounds. What a law promises is asserted
/// within `run`, and must hold in each.
pub fn measured(run: impl FnMut() -> Option<String>) {
    let runs = if asserts_times() { 3 } else { 1 };
    let missed: Vec<String> = iter::repeat_with(run).take(runs).map_while(|figures| figures).collect();
    if missed.len() < runs {
        return;
    }
    assert!(!asserts_times(), "none of three runs meets its bounds: {missed:#?}");
    print_line(&format!("(misses bounds that tests/run --long asserts: {missed:?})"));
}

/// Asserts that one of three runs takes less than `limit`, without the time in which the runtime of the test did not
/// run. A run returns the time it took.
pub async fn timely(limit: Duration, mut run: impl AsyncFnMut() -> Duration) {
    let mut times = Vec::new();
    for _ in 0..3 {
        let stalls = Stalls::default();
        let took = tokio::select! {
            biased;
            took = run() => took,
            () = stalls.measure() => unreachable!("the measurement does not end"),
        };
        let stalled = stalls.until_now();
        if took.saturating_sub(stalled) < limit {
            return;
        }
        times.push((took, stalled));
    }
    panic!("none of three runs took less than {limit:?} beside its stalls: {times:?}");
}

/// Measures by how much sleeps of a millisecond overrun: the time in which the runtime did not run.
#[derive(Debug, Default)]
struct Stalls {
    stalled: Cell<Duration>,
    sleeping_since: Cell<Option<Instant>>,
}

impl Stalls {
    /// A sleep, and the usual delay of a timer.
    const SLEEP: Duration = Duration::from_millis(1);
    const USUAL: Duration = Duration::from_micros(2_200);

    async fn measure(&self) {
        loop {
            self.sleeping_since.set(Some(Instant::now()));
            tokio::time::sleep(Self::SLEEP).await;
            self.stalled.set(self.until_now());
        }
    }

    /// Counts the present sleep too.
    fn until_now(&self) -> Duration {
        let sleeping = self.sleeping_since.get().map_or(Duration::ZERO, |since| since.elapsed());
        self.stalled.get() + sleeping.saturating_sub(Self::USUAL)
    }
}

/// Prints a line although the test harness captures `println`, because the figures are useful when tests pass.
pub fn print_line(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}
