//! Several processes that hold, settle and charge the same key.

use std::time::Duration;

use tollgate::store::{HoldChange, SettleAnswer};
use tollgate::{Algorithm, Check, Policy, policy::HoldSettings};

use super::{available, builder, change, check, hold};
use crate::support::redis_server::RedisServer;

const LIMIT: u64 = 4_000;

/// Holds, settles below the estimate and charges, as one process. Returns what it has charged.
fn process(url: &str, policy: &Policy, seed: u64) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = builder().open(url).unwrap();
        let tasks = (0..8_u64).map(|task| {
            let (store, policy) = (store.clone(), policy.clone());
            async move {
                let mut charged = 0;
                for step in 0..60 {
                    let number = seed + task * 60 + step;
                    let cost = 1 + number % 9;
                    if number.is_multiple_of(3) {
                        charged += cost * u64::from(check(&store, &Check::new("k", &policy, cost)).await.allowed);
                    } else if let Some(open) = hold(&store, "k", &policy, cost).await {
                        tokio::task::yield_now().await;
                        let actual = number % (cost + 1);
                        assert_eq!(change(&store, &open, HoldChange::Settle(actual)).await, SettleAnswer::Settled);
                        charged += actual;
                    }
                }
                charged
            }
        });
        let mut running = tokio::task::JoinSet::new();
        tasks.for_each(|task| drop(running.spawn(task)));
        running.join_all().await.into_iter().sum()
    })
}

#[test]
fn law_11_every_unit_of_every_process_is_charged_once() {
    let server = RedisServer::start();
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow] {
        // A window that does not end during the test.
        let policy = Policy::new("p", LIMIT, Duration::from_secs(86_400 * 365)).unwrap().with_algorithm(algorithm);
        let policy = policy.with_holds(HoldSettings::new());
        let url = server.url();
        let charged: u64 = std::thread::scope(|scope| {
            let processes: Vec<_> = (0..3)
                .map(|number| {
                    scope.spawn({
                        let (url, policy) = (&url, &policy);
                        move || process(url, policy, number * 480)
                    })
                })
                .collect();
            processes.into_iter().map(|process| process.join().unwrap()).sum()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let left = runtime.block_on(async { available(&builder().open(&url).unwrap(), "k", &policy).await });
        assert!(charged > LIMIT / 2, "{charged}");
        assert_eq!(left, LIMIT - charged, "{algorithm:?}");
    }
}
