//! Callers that wait for units: order, rate, calls of Redis, and fairness among processes.
#![allow(clippy::unwrap_used, missing_docs)]

mod alone;
mod arrivals;
mod by_hand;
mod drops;
mod fleet;
mod load;
mod pauses;
mod requests;
#[path = "../support/mod.rs"]
mod support;

pub(crate) use support::{print_line, undisturbed};

/// Not a test: the entry point of the processes that call an upstream.
#[test]
#[ignore = "started by the tests above"]
fn arrivals_process() {
    arrivals::main();
}

/// Not a test: the entry point of the processes of a fleet.
#[test]
#[ignore = "started by the tests above"]
fn fleet_process() {
    fleet::main();
}
