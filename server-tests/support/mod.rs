//! Test servers and networks, and the support code shared with the tests that need no server.
#![allow(dead_code, missing_debug_implementations, unreachable_pub, unused_imports, clippy::unwrap_used)]

pub mod cluster;
pub mod judge;
pub mod link;
pub mod proxy;
pub mod redis_server;
pub mod sentinel;
#[path = "../../tests/support/mod.rs"]
mod shared;

use std::{
    io::{self, Write},
    iter,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

pub use shared::*;

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

/// Asserts that one of three runs meets its bounds. A run that does not returns its figures. A machine that is busy
/// elsewhere takes the cores away for tens of milliseconds, which no limiter can make up for. This is for times and
/// rates only: what a law promises must hold in each run.
pub fn one_of_three(run: impl FnMut() -> Option<String>) {
    let missed: Vec<String> = iter::repeat_with(run).take(3).map_while(|figures| figures).collect();
    assert!(missed.len() < 3, "none of three runs meets its bounds: {missed:#?}");
}

/// Like [`one_of_three`], for runs that return the time they took.
pub async fn timely(limit: Duration, mut run: impl AsyncFnMut() -> Duration) {
    let mut times = Vec::new();
    for _ in 0..3 {
        let took = run().await;
        if took < limit {
            return;
        }
        times.push(took);
    }
    panic!("none of three runs took less than {limit:?}: {times:?}");
}

/// Prints a line although the test harness captures `println`, because the figures are useful when tests pass.
pub fn print_line(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}
