//! When Redis fails: real servers, real faults, load from several processes, and every answer judged afterwards.
//!
//! Each scenario prints a line for each failure policy. Waits are what a caller of the layer sees. Where one is longer
//! than the deadline, the test takes off what a plain sleep of the same length, at the same time and in the same
//! process, was too long: a machine with two busy cores is late by itself.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    missing_docs
)]

mod crew;
mod faults;
mod flat;
mod later;
mod record;
mod scenario;
mod soak;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod tally;
mod worker;

use std::time::Duration;

/// What the store waits for at most, by default.
const DEADLINE: Duration = Duration::from_millis(50);

/// Not a test: what the other processes run.
#[test]
#[ignore = "started by the tests above"]
fn worker_process() {
    worker::main();
}
