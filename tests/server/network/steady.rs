//! A steady load of many keys over a network.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio::{runtime, task::JoinSet};
use tollgate::{Limiter, Policy, RedisStore};

use crate::support::{link::Link, redis_server::RedisServer};
use crate::{ROUND_TRIPS, burst::wait_until_connected, exclusively, print_line};

/// Sends checks at the given rate; returns the number of checks, and of checks without a verdict.
async fn unjudged(limiter: &Limiter, per_second: u32, time: Duration) -> (u32, u32) {
    let policy = Policy::per_minute("p", 1_000).unwrap();
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    let count = per_second * u32::try_from(time.as_millis()).unwrap() / 1_000;
    for number in 0..count {
        // Sends the checks that are due, once per millisecond.
        let due = start + time * number / count;
        if due > Instant::now() + Duration::from_millis(1) {
            sleep_until(due).await;
        }
        let check = limiter.check(u64::from(number % 10_000), &policy, 1);
        tasks.spawn(async move { check.await.is_err() });
    }
    let failed = tasks.join_all().await.into_iter().filter(|failed| *failed).count();
    (count, u32::try_from(failed).unwrap())
}

fn steady(per_second: u32, round_trips: &[Duration], time: Duration) {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for &round_trip in round_trips {
        let server = RedisServer::start();
        let link = Link::to(server.port(), round_trip);
        let limiter = Limiter::new(RedisStore::open(&link.url()).unwrap());
        runtime.block_on(wait_until_connected(&limiter));
        let (checks, unjudged) = runtime.block_on(unjudged(&limiter, per_second, time));
        print_line(&format!(
            "steady round_trip={round_trip:?} per_second={per_second} checks={checks} unjudged={unjudged}"
        ));
        assert_eq!(unjudged, 0, "{round_trip:?}");
    }
}

#[test]
fn every_check_of_a_steady_load_over_a_network_gets_a_verdict() {
    exclusively(|| steady(2_000, &[ROUND_TRIPS[5]], Duration::from_secs(1)));
}

/// The full rates need a release build; a debug build is several times slower.
#[test]
#[ignore = "takes long: tests/run --long"]
fn long_steady_load_at_every_round_trip() {
    let rates: &[u32] = if cfg!(debug_assertions) { &[4_000] } else { &[14_000, 16_000] };
    for &per_second in rates {
        for _ in 0..3 {
            exclusively(|| steady(per_second, &ROUND_TRIPS, Duration::from_secs(3)));
        }
    }
}
