//! When Redis fails: real servers, real faults, load from several processes, and every answer judged afterwards.
//!
//! Each scenario prints a line for each failure policy. Waits are what a caller of the layer sees. The longest ones are
//! compared with plain sleeps in the same process: while one of those is over and goes on all the same, the process is
//! kept from running, and that time is the machine's and not the limiter's. So the deadline is asserted on what is left,
//! also on two busy cores.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    missing_docs
)]
mod cluster;
mod environment;
mod faults;
mod healthy_redis;
mod interference;
mod load;
mod log;
mod machine;
mod memory;
mod open_breaker;
mod record;
mod report;
mod scenario;
mod sentinel;
mod soak;
#[path = "../support/mod.rs"]
mod support;
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
