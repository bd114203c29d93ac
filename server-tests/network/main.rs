//! Networks with a round trip, executors that are held up, processes that are paused: Redis is well in all of this, so no
//! request may pass unjudged, and none may be refused for want of a verdict.
//!
//! The short forms run with all other tests. `tests/run --long` runs every load at every round trip, three times.
#![allow(clippy::unwrap_used, missing_docs)]

mod burst;
mod client;
mod frozen;
mod idle_connections;
mod server;
mod stalls;
mod steady;
#[path = "../support/mod.rs"]
mod support;

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Round trips from the same machine to another region.
pub(crate) const ROUND_TRIPS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
];

/// One load at a time: a machine with two cores has no time for two.
pub(crate) fn alone<T>(run: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// To the terminal, because the figures are of use when nothing fails.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Not a test: the server that the tests start as a process of its own.
#[test]
#[ignore = "started by the tests above"]
fn server_process() {
    server::main();
}
