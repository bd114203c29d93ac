//! Causes that are not Redis': a network with a round trip, and processes that do not run. Redis is well all the time, so
//! each request gets a verdict.

use std::{thread, time::Duration};

use crate::{
    environment::{HOLD, Stage},
    load::{Crew, Load, Trouble},
    record::now_us,
    scenario::{Place, alone, report, say},
    support::proxy::Fault,
    worker::policies_for,
};

/// Runs a load on a Redis that is well, with each failure policy, and judges every answer.
fn all_is_well(name: &str, load: Load, round_trip: Duration) {
    alone(|| {
        for policy in policies_for(name) {
            let stage = Stage::set(&[], !round_trip.is_zero(), HOLD);
            let crew = Crew::start(&stage.address(), &[policy], load);
            if !round_trip.is_zero() {
                stage.proxy.set(Fault::Latency(round_trip / 2));
            }
            // What was sent before has been answered.
            thread::sleep(Duration::from_millis(200));
            let from_us = now_us();
            thread::sleep(2 * HOLD);
            let until_us = crew.caught_up();
            let mut tally = crew.stop();
            let unjudged = tally.without_verdict(from_us, until_us);
            tally.settle(u64::MAX, &[]);
            report(name, policy, &tally, 0);
            say(&format!("({unjudged} requests without a verdict)"));
            let (found, most) = tally.found();
            assert_eq!(unjudged, 0, "{name}, {policy}: requests without a verdict");
            assert_eq!((found.over, found.false_denials), (0, 0), "{name}, {policy}: {found:?}");
            assert!(most <= 1.0, "{name}, {policy}: {most} of a limit in a window");
            assert!(found.denials * 20 > found.answers, "{name}, {policy}: the limits were not contended: {found:?}");
        }
    });
}

/// Bursts of four thousand requests, a thousand in each of the processes.
const BURSTS: Load = Load { burst: 4_000, ..Load::STEADY };

#[test]
fn every_round_trip_takes_two_milliseconds() {
    all_is_well("round_trip_2ms", BURSTS, Duration::from_millis(2));
}

#[test]
fn every_round_trip_takes_ten_milliseconds() {
    all_is_well("round_trip_10ms", BURSTS, Duration::from_millis(10));
}

#[test]
fn every_round_trip_takes_twenty_milliseconds() {
    all_is_well("round_trip_20ms", BURSTS, Duration::from_millis(20));
}

#[test]
fn the_executors_are_held_up() {
    all_is_well("executor_stalls", Load { trouble: Trouble::Stalls, ..Load::STEADY }, Duration::ZERO);
}

#[test]
fn the_processes_are_paused() {
    all_is_well("process_paused", Load { trouble: Trouble::Pauses, ..Load::STEADY }, Duration::ZERO);
}
