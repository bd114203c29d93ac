//! A Redis that freezes while many checks are in flight.

use std::time::Duration;

use tokio::{runtime, task::JoinSet, time::Instant};
use tollgate::{ErrorKind, Limiter, Policy, RedisStore};

use crate::{burst::wait_until_connected, exclusively, print_line, support::redis_server::RedisServer};

const IN_FLIGHT: u64 = 600;

/// The kinds of all errors of a load during which `freeze` is called.
async fn errors(limiter: &Limiter, time: Duration, freeze: impl FnOnce()) -> Vec<ErrorKind> {
    let policy = Policy::per_minute("p", 1_000_000).unwrap();
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for key in 0..IN_FLIGHT {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tasks.spawn(async move {
            let mut errors = Vec::new();
            while Instant::now() < end {
                errors.extend(limiter.check(key, &policy, 1).await.err().map(|error| error.kind()));
                if !errors.is_empty() {
                    // The open breaker fails checks immediately, so pause.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            errors
        });
    }
    // The load is at its full rate by then.
    tokio::time::sleep(time / 2).await;
    freeze();
    tasks.join_all().await.into_iter().flatten().collect()
}

#[test]
fn a_redis_that_freezes_under_load_is_left_to_the_failure_policy() {
    exclusively(|| {
        let server = RedisServer::start();
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        // No check of a healthy Redis takes as long as half of this, also on a busy machine.
        let store = RedisStore::builder().deadline(Duration::from_secs(1)).open(&server.url());
        let limiter = Limiter::new(store.unwrap());
        runtime.block_on(wait_until_connected(&limiter));
        let errors = runtime.block_on(errors(&limiter, Duration::from_millis(2_500), || server.signal("STOP")));
        let refused = errors.iter().filter(|kind| **kind == ErrorKind::Overloaded).count();
        print_line(&format!("frozen in_flight={IN_FLIGHT} errors={} overloaded={refused}", errors.len()));
        assert!(errors.len() as u64 >= IN_FLIGHT && limiter.is_breaker_open(), "{}", errors.len());
        assert_eq!(refused, 0, "of {}", errors.len());
    });
}
