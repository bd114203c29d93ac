//! Callers that wait for units: order, rate, calls of Redis, and fairness among processes.
#![allow(clippy::unwrap_used, missing_docs)]

mod alone;
mod by_hand;
mod drops;
mod fleet;
mod load;
mod pauses;
#[path = "../support/mod.rs"]
mod support;

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

/// Runs one load at a time, because each test measures times.
pub(crate) fn exclusively<T>(run: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// Prints a line although the test harness captures `println`, because the figures are useful when tests pass.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Not a test: the entry point of the processes of a fleet.
#[test]
#[ignore = "started by the tests above"]
fn fleet_process() {
    fleet::main();
}
