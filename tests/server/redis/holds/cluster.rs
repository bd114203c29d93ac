//! Holds on a cluster: checks across slots hold all of their units or none.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::store::{HoldChange, SettleAnswer, Store};
use tollgate::{Algorithm, Check, Policy, RedisStore, policy::HoldSettings};

use super::{answer, available, builder, change, check, hold};
use crate::support::cluster::Cluster;

/// "bar" is in a slot of the first node and is committed before "foo", in a slot of the third.
const FIRST: &str = "bar";
const LAST: &str = "foo";

async fn connected(cluster: &Cluster) -> RedisStore {
    let store = builder().open_cluster([cluster.nodes[0].url().as_str()]).unwrap();
    let start = Instant::now();
    while answer(store.ready()).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    store
}

/// A policy with a window long enough that none ends during the test.
fn policy(name: &str, limit: u64, algorithm: Algorithm) -> Policy {
    let policy = Policy::new(name, limit, Duration::from_secs(86_400 * 365)).unwrap().with_algorithm(algorithm);
    policy.with_holds(HoldSettings::new().with_ttl(Duration::from_secs(3_600)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_3_a_hold_across_slots_is_made_in_all_of_them_or_in_none() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    for algorithm in
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket]
    {
        let wide = policy("wide", 100_000, algorithm);
        let scarce = policy("scarce", 100, algorithm);
        let mut burst = JoinSet::new();
        for task in 0..300_u64 {
            let (store, wide, scarce) = (store.clone(), wide.clone(), scarce.clone());
            burst.spawn(async move {
                // Plain charges compete with pairs of holds, and with pairs of a hold and a plain charge.
                let pair = match task % 6 {
                    0 => Check::new(LAST, &scarce, 1),
                    1 => Check::new(LAST, &scarce, 1).and_hold(FIRST, &wide, 3),
                    2 => Check::hold(LAST, &scarce, 1).and(FIRST, &wide, 3),
                    _ => Check::hold(LAST, &scarce, 1).and_hold(FIRST, &wide, 3),
                };
                check(&store, &pair).await.allowed.then_some(pair)
            });
        }
        let admitted: Vec<_> = burst.join_all().await.into_iter().flatten().collect();
        assert_eq!(admitted.len(), 100, "{algorithm:?}");
        assert_eq!(available(&store, LAST, &scarce).await, 0, "{algorithm:?}");
        let open = |key: &str| {
            let held = admitted.iter().flat_map(|check| check.charges()).filter(|charge| charge.hold.is_some());
            held.filter(|hold| hold.key == key.into()).collect::<Vec<_>>()
        };
        // The denials return before their refunds are executed.
        let charges = admitted.iter().flat_map(|check| check.charges()).filter(|charge| charge.key == FIRST.into());
        let spent = u64::try_from(charges.count()).unwrap() * 3;
        let start = Instant::now();
        // A bucket refills a unit in five minutes.
        while available(&store, FIRST, &wide).await != 100_000 - spent {
            assert!(start.elapsed() < Duration::from_secs(5), "{algorithm:?}: {spent} units are held or charged");
        }
        for (key, policy) in [(FIRST, &wide), (LAST, &scarce)] {
            let before = available(&store, key, policy).await;
            let open = open(key);
            for (number, hold) in open.iter().enumerate() {
                // What is not used is free at once, and an underestimate is charged.
                let actual = if number % 2 == 0 { 0 } else { 4 };
                assert_eq!(change(&store, hold, HoldChange::Settle(actual)).await, SettleAnswer::Settled);
                assert_eq!(change(&store, hold, HoldChange::Settle(actual)).await, SettleAnswer::Expired);
            }
            let cost = if key == FIRST { 3 } else { 1 };
            let count = u64::try_from(open.len()).unwrap();
            let left = (before + count * cost).saturating_sub(count / 2 * 4);
            if algorithm != Algorithm::TokenBucket {
                assert_eq!(available(&store, key, policy).await, left, "{algorithm:?} {key}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_another_slot_denies_leaves_no_key() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let (wide, scarce) =
        (policy("wide", 10, Algorithm::SlidingWindowLog), policy("scarce", 10, Algorithm::SlidingWindowLog));
    let open = hold(&store, LAST, &scarce, 8).await.unwrap();
    for _ in 0..20 {
        let pair = Check::hold(FIRST, &wide, 10).and_hold(LAST, &scarce, 3);
        let verdict = check(&store, &pair).await;
        assert!(!verdict.allowed);
        assert_eq!((verdict.outcomes[0].fits, verdict.outcomes[1].fits), (true, false));
        // A hold may end at any time, so the denial says so.
        assert!(verdict.outcomes[1].retry_after_us.is_some_and(|us| (1..=1_000_000).contains(&us)));
    }
    assert_eq!(change(&store, &open, HoldChange::Settle(0)).await, SettleAnswer::Settled);
    assert!(cluster.nodes.iter().all(|node| node.command("DBSIZE").starts_with(":0")), "a key is left");
}
