//! Trouble outside of Redis: network latency, and processes that are stalled or stopped. Redis stays healthy, so every
//! request must get a verdict, in one of three runs of `tests/run --long`: a busy machine stops Redis and the proxy
//! too.

use std::{thread, time::Duration};

use crate::environment::{Environment, HOLD};
use crate::load::{Interference, Load, Workers};
use crate::scenario::{measured, print_line, print_report, undisturbed};
use crate::{record::now_us, support::proxy::Fault, target::Target, worker::policies_for};

/// Runs a load on a healthy Redis with each failure policy, and checks every verdict.
fn assert_every_request_gets_a_verdict(name: &str, load: Load, round_trip: Duration) {
    undisturbed(|| {
        policies_for(name).for_each(|policy| measured(|| run(name, policy, load, round_trip)));
    });
}

/// Returns the number of requests without a verdict, if there are any.
fn run(name: &str, policy: &str, load: Load, round_trip: Duration) -> Option<String> {
    let environment = Environment::start(&[], !round_trip.is_zero(), HOLD);
    let workers = Workers::start(&environment.address(), &[policy], load);
    if !round_trip.is_zero() {
        environment.proxy.set(Fault::Latency(round_trip / 2));
    }
    // Requests sent before the latency began have replies.
    thread::sleep(Duration::from_millis(200));
    let from_us = now_us();
    thread::sleep(2 * HOLD);
    let until_us = workers.wait_until_reported();
    let mut results = workers.stop();
    let unjudged = results.without_verdict(from_us, until_us);
    results.settle(u64::MAX, &[]);
    print_report(name, policy, &results, 0);
    print_line(&format!("({unjudged} requests without a verdict)"));
    let (found, most) = results.found();
    assert_eq!((found.over, found.false_denials), (0, 0), "{name}, {policy}: {found:?}");
    assert!(most <= 1.0, "{name}, {policy}: {most} of a limit in a window");
    assert!(found.denials > 100, "{name}, {policy}: the limits were not contended: {found:?}");
    (unjudged > 0).then(|| format!("{name}, {policy}: {unjudged} requests without a verdict"))
}

/// Bursts of 4 000 requests, 1 000 in each process.
const BURSTS: Load = Load { burst: 4_000, ..Load::STEADY };

#[test]
fn every_round_trip_takes_two_milliseconds() {
    assert_every_request_gets_a_verdict("round_trip_2ms", BURSTS, Duration::from_millis(2));
}

#[test]
fn every_round_trip_takes_ten_milliseconds() {
    assert_every_request_gets_a_verdict("round_trip_10ms", BURSTS, Duration::from_millis(10));
}

#[test]
fn every_round_trip_takes_twenty_milliseconds() {
    assert_every_request_gets_a_verdict("round_trip_20ms", BURSTS, Duration::from_millis(20));
}

#[test]
fn the_executors_are_stalled() {
    assert_every_request_gets_a_verdict(
        "executor_stalls",
        Load { interference: Interference::Stalls, ..Load::STEADY },
        Duration::ZERO,
    );
}

#[test]
fn the_processes_are_paused() {
    assert_every_request_gets_a_verdict(
        "process_paused",
        Load { interference: Interference::Pauses, ..Load::STEADY },
        Duration::ZERO,
    );
}
