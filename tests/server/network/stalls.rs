//! Handlers that block their worker threads, and processes that are paused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{thread, time::Duration};

use crate::client::{Responses, load};
use crate::server::{Service, Setup};
use crate::support::{link::Link, redis_server::RedisServer};
use crate::{ROUND_TRIPS, exclusively, print_line};

const TWO_WORKERS: Setup =
    Setup { limit: 60, worker_threads: 2, blocks_for: Duration::from_millis(60), fail_closed: false };

fn judge(name: &str, round_trip: Duration, setup: Setup, responses: Responses) {
    let Responses { handled, unjudged, denied, unavailable } = responses;
    print_line(&format!(
        "{name} round_trip={round_trip:?} workers={} blocks_for={:?} fail_closed={} limit={} handled={handled} \
         unjudged={unjudged} denied={denied} unavailable={unavailable}",
        setup.worker_threads, setup.blocks_for, setup.fail_closed, setup.limit
    ));
    assert_eq!((unjudged, unavailable), (0, 0), "{name} {round_trip:?} {setup:?}: {responses:?}");
    assert!(handled <= setup.limit, "{name} {round_trip:?} {setup:?}: {responses:?}");
    // The limit must be reached, otherwise the test proves nothing.
    assert!(handled == setup.limit && denied > 0, "{name} {round_trip:?} {setup:?}: {responses:?}");
}

/// Loads a service whose handler blocks its thread.
fn handlers(setup: Setup, round_trip: Duration, time: Duration) {
    exclusively(|| run_handlers(setup, round_trip, time));
}

fn run_handlers(setup: Setup, round_trip: Duration, time: Duration) {
    let server = RedisServer::start();
    let link = Link::to(server.port(), round_trip);
    let service = Service::start(&link.url(), setup);
    judge("handlers", round_trip, setup, load(service.port, 40, time));
}

/// Loads a service that is stopped for 60 ms of every 100, as under a CPU quota.
fn paused(setup: Setup, round_trip: Duration, time: Duration) {
    exclusively(|| run_paused(setup, round_trip, time));
}

fn run_paused(setup: Setup, round_trip: Duration, time: Duration) {
    let server = RedisServer::start();
    let link = Link::to(server.port(), round_trip);
    let service = Service::start(&link.url(), setup);
    let ended = AtomicBool::new(false);
    let responses = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                service.signal("STOP");
                thread::sleep(Duration::from_millis(60));
                service.signal("CONT");
                thread::sleep(Duration::from_millis(40));
            }
        });
        let responses = load(service.port, 40, time);
        ended.store(true, Ordering::Relaxed);
        responses
    });
    judge("paused", round_trip, setup, responses);
}

#[test]
fn law_14_handlers_that_block_their_threads_lift_no_limit() {
    handlers(TWO_WORKERS, ROUND_TRIPS[0], Duration::from_secs(3));
    handlers(Setup { blocks_for: Duration::from_millis(15), ..TWO_WORKERS }, ROUND_TRIPS[3], Duration::from_secs(2));
}

#[test]
fn law_14_a_process_that_is_paused_repeatedly_lifts_no_limit() {
    paused(Setup { limit: 300, blocks_for: Duration::ZERO, ..TWO_WORKERS }, ROUND_TRIPS[2], Duration::from_secs(2));
}

#[test]
#[ignore = "takes long: tests/run --long"]
fn long_stalls_at_every_round_trip() {
    let setups = [
        TWO_WORKERS,
        Setup { blocks_for: Duration::from_millis(15), ..TWO_WORKERS },
        Setup { limit: 120, worker_threads: 8, ..TWO_WORKERS },
    ];
    for round_trip in ROUND_TRIPS {
        for fail_closed in [false, true] {
            for _ in 0..3 {
                for setup in setups {
                    handlers(Setup { fail_closed, ..setup }, round_trip, Duration::from_secs(5));
                }
                let setup = Setup { limit: 300, blocks_for: Duration::ZERO, fail_closed, ..TWO_WORKERS };
                paused(setup, round_trip, Duration::from_secs(5));
            }
        }
    }
}
