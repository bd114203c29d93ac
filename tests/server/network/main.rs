//! Network latency, stalled executors and paused processes. Redis is healthy in all these tests, so every request must
//! get a verdict.
//!
//! The short versions run by default. `tests/run --long` runs every load at every round trip three times.
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

pub(crate) use support::{exclusively, print_line};

use std::time::Duration;

/// Round trips, from within a machine to another region.
pub(crate) const ROUND_TRIPS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
];

/// Not a test: the entry point of the server process.
#[test]
#[ignore = "started by the tests above"]
fn server_process() {
    server::main();
}
