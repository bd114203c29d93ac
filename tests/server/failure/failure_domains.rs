//! Clusters where one master recovers and another does not.

use std::time::{Duration, Instant};

use tollgate::{Check, Limiter, MemoryStore, Policy, RedisStore, decision::Source};

use crate::support::cluster::{Cluster, plain_key};

const KEYS: u64 = 600;

/// The number of keys that another instance sees charged.
async fn charged(limiter: &Limiter, keys: &[u64], policy: &Policy) -> usize {
    let mut charged = 0;
    for key in keys {
        charged += usize::from(limiter.peek(*key, policy).await.is_ok_and(|decision| decision.available() == Some(99)));
    }
    charged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovered_master_is_charged_for_the_outage_while_another_master_is_down() {
    let mut cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let (first, second) = (cluster.nodes[0].url(), cluster.nodes[1].url());
    let instance = || {
        let builder = RedisStore::builder().deadline(Duration::from_secs(1)).plain_keys();
        Limiter::new(builder.open_cluster([first.as_str(), second.as_str()]).unwrap())
    };
    let (limiter, other) = (instance().with_local_fallback(MemoryStore::new(), 2), instance());
    let policy = Policy::per_hour("p", 100).unwrap();
    let keys_of = |node| (0..KEYS).filter(|key| cluster.slot_of(&plain_key(*key, &policy)).1 == node).collect();
    let (recovered, down): (Vec<_>, Vec<_>) = (keys_of(0), keys_of(2));
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    cluster.nodes[0].kill();
    cluster.nodes[2].kill();
    for key in down.iter().chain(&recovered) {
        let decision = limiter.check(*key, &policy, 1).fail_local().await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Local));
    }
    cluster.nodes[0].restart();
    cluster.nodes[0].command(Cluster::PARTIAL_COVERAGE);
    let start = Instant::now();
    while limiter.peek(recovered[0], &policy).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "the first master did not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Each failure domain of the master closes its breaker with a check of its own.
    let start = Instant::now();
    loop {
        for key in &recovered {
            let _ = limiter.peek(*key, &policy).await;
        }
        let charged = charged(&other, &recovered, &policy).await;
        if charged == recovered.len() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{charged} of {} charged", recovered.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_across_slots_are_held_back_after_an_outage_too() {
    const SHARE: usize = 10;
    let cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let builder = RedisStore::builder().plain_keys();
    let store = builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap();
    let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
    let policy = Policy::per_hour("p", 80).unwrap();
    // "bar" is in a slot of the first node, "foo" in a slot of the third.
    let start = Instant::now();
    while limiter.peek("foo", &policy).await.is_err() || limiter.peek("bar", &policy).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5), "the cluster is not reachable");
    }
    cluster.nodes[2].signal("STOP");
    while !limiter.is_breaker_open() {
        assert!(limiter.peek("foo", &policy).await.is_err());
    }
    cluster.nodes[2].signal("CONT");
    let start = Instant::now();
    while limiter.is_breaker_open() {
        let _ = limiter.peek("foo", &policy).await;
        assert!(start.elapsed() < Duration::from_secs(5), "the third master did not recover");
    }
    // After the outage only the share is admitted, because other instances may still have local admissions to charge.
    let mut admitted = 0;
    for _ in 0..3 * SHARE {
        let both = Check::new("bar", &policy, 1).and("foo", &policy, 1);
        admitted += usize::from(limiter.check_all(both).fail_local().await.unwrap().is_allowed());
    }
    assert_eq!(admitted, SHARE);
}
