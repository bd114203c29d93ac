//! Tests of Redis outages: real servers, real faults, load from several processes, and a check of every verdict.
//!
//! Each scenario prints one line for each failure policy. Waits are measured at the layer, as its caller sees them.
//! Each worker also measures how long plain sleeps overrun. An overrun is time in which the process did not run, so it
//! is subtracted from the waits of that period. The deadline is asserted on the remainder, which makes the assertion
//! valid on two busy cores.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    missing_docs
)]
mod cluster;
mod day;
mod environment;
mod faults;
mod healthy_redis;
mod interference;
mod load;
mod log;
mod memory;
mod open_breaker;
mod record;
mod report;
mod scenario;
mod scheduling;
mod sentinel;
mod soak;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../../../benches/peers/src/svg/mod.rs"]
mod svg;
mod target;
mod worker;

use std::time::Duration;

/// The default deadline of the store.
const DEADLINE: Duration = Duration::from_millis(50);
/// The number of processes that generate the load.
const WORKERS: usize = 4;

/// Not a test: the entry point of the worker processes.
#[test]
#[ignore = "started by the tests above"]
fn worker_process() {
    worker::main();
}
