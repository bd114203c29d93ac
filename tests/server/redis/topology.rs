//! Clusters with masters that are down, nodes whose slot maps contradict each other, and a runtime that ends during a
//! check.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::{runtime, task::JoinSet};
use tollgate::{Check, ErrorKind, Key, Limiter, Policy, RedisStore};

use super::cluster::{Warnings, connected, limiter};
use super::policy;
use crate::support::cluster::{Cluster, plain_key};
use crate::support::redis_server::{RedisServer, calls};
use crate::support::{recorder::assert_warnings, until};

/// The slot of a key. "foo" is in a slot of the third node, "bar" in one of the first.
fn slot_of(cluster: &Cluster, key: impl Into<Key>) -> u16 {
    cluster.slot_of(&plain_key(key, &policy())).0
}

#[test]
fn a_check_on_a_runtime_that_has_ended_returns_an_error() {
    let cluster = Cluster::start();
    let store = RedisStore::builder().batching(false).breaker(None);
    let limiter = Limiter::new(store.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (end, ended) = mpsc::channel::<()>();
    let (sender, result) = mpsc::channel();
    let handle = runtime.handle().clone();
    runtime.spawn_blocking(move || {
        ended.recv().unwrap();
        let _ = sender.send(handle.block_on(async { limiter.check("foo", &policy(), 1).await }));
    });
    runtime.shutdown_background();
    end.send(()).unwrap();
    let result = result.recv_timeout(Duration::from_secs(5)).expect("the check hangs");
    assert!(result.is_err(), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_master_is_found_while_another_master_is_silent_and_the_deadline_is_long() {
    let mut cluster = Cluster::start_with_replicas();
    cluster.allow_partial_coverage();
    for node in &cluster.nodes {
        node.command("CONFIG SET cluster-replica-no-failover yes");
    }
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(12)).breaker(None);
    let nodes: Vec<_> = cluster.nodes.iter().map(RedisServer::url).collect();
    let limiter = Limiter::new(builder.open_cluster(nodes).unwrap());
    connected(&limiter).await;
    let key = (0..100_u64).find(|key| cluster.slot_of(&plain_key(*key, &policy())).1 == 1).unwrap();
    for key in 0..100_u64 {
        let _ = limiter.check(key, &policy(), 1).await.unwrap();
    }
    cluster.nodes[0].signal("STOP");
    cluster.nodes[1].kill();
    cluster.nodes[4].command("CLUSTER FAILOVER TAKEOVER");
    let port = format!(":{}\r", cluster.nodes[4].port());
    until("the third master knows the new one", || {
        cluster.nodes[4].command("ROLE").contains("master")
            && cluster.nodes[2].command("CLUSTER SLOTS").matches(&port).count() == 1
    });
    let start = Instant::now();
    while limiter.check(key, &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(4), "the new master was not found");
    }
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_13_eviction_is_warned_of_although_a_master_is_down_at_the_start() {
    let cluster = Cluster::start();
    cluster.allow_partial_coverage();
    for node in &cluster.nodes {
        node.command("CONFIG SET maxmemory-policy allkeys-lru");
    }
    cluster.nodes[0].signal("STOP");
    let (sender, warnings) = mpsc::channel();
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_millis(200));
    let nodes: Vec<_> = cluster.nodes.iter().map(RedisServer::url).collect();
    let limiter = Limiter::new(builder.open_cluster(nodes).unwrap()).with_observer(Warnings(sender));
    let start = Instant::now();
    let warned = loop {
        let _ = limiter.check("foo", &policy(), 1).await;
        match warnings.try_recv() {
            Ok(warning) => break warning,
            Err(_) => assert!(start.elapsed() < Duration::from_secs(5), "no warning"),
        }
    };
    assert_warnings(&[warned], &[("eviction", "allkeys-lru")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_come_from_the_deny_cache_while_another_master_is_down() {
    const DENIALS: u64 = 1_000;
    let mut cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let spent = Policy::per_hour("spent", 1).unwrap();
    assert!(limiter.check("bar", &spent, 1).await.unwrap().is_allowed());
    cluster.nodes[2].kill();
    let stop = Arc::new(AtomicBool::new(false));
    let others = tokio::spawn({
        let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
        async move {
            // Each failure domain of the lost master detects the outage by itself. These subjects are in groups of
            // slots that only the third node has.
            for key in (0_u64..).map(|number| format!("k{number}")).filter(|key| slot(key) > 11_263) {
                let _ = limiter.check(key, &policy(), 1).await;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    });
    let before = calls(&cluster.nodes[0], "evalsha");
    for _ in 0..DENIALS {
        assert!(!limiter.check("bar", &spent, 1).await.unwrap().is_allowed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asked = calls(&cluster.nodes[0], "evalsha") - before;
    stop.store(true, Ordering::Relaxed);
    others.await.unwrap();
    // A cached denial is refreshed once per second.
    assert!(asked < 20, "{asked} calls for {DENIALS} denials");
}

/// The slot of a subject, which determines its group.
fn slot(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % 16_384
}

/// Keys in the slot of "foo".
fn keys_in_the_slot(cluster: &Cluster, count: usize) -> Vec<String> {
    let slot = slot_of(cluster, "foo");
    (0_u64..).map(|number| format!("k{number}")).filter(|key| slot_of(cluster, key) == slot).take(count).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_on_both_sides_of_a_migration_get_verdicts_from_shared_calls() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let keys = keys_in_the_slot(&cluster, 40);
    for known in &keys[..20] {
        let _ = limiter.check(known.as_str(), &policy(), 1).await.unwrap();
    }
    cluster.begin_move(slot_of(&cluster, "foo"), 2, 0);
    let mut load = JoinSet::new();
    for key in keys {
        let limiter = limiter.clone();
        load.spawn(async move {
            for _ in 0..50 {
                let _ = limiter.check(key.as_str(), &policy(), 1).await.unwrap();
            }
        });
    }
    load.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migrating_slot_gives_verdicts_and_opens_no_breaker() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let [a, b] = ["a", "b"].map(|name| Policy::per_hour(name, 1_000).unwrap());
    cluster.begin_move(slot_of(&cluster, "foo"), 2, 0);
    for _ in 0..30 {
        // Two Redis keys that the old master does not hold and the new master does not own yet.
        let decision = limiter.check_all(Check::new("foo", &a, 1).and("foo", &b, 1)).await.unwrap();
        assert!(decision.is_allowed(), "{decision:?}");
    }
    assert!(!limiter.is_breaker_open());
    let _ = limiter.check("foo", &a, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_importing_node_is_unavailable() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    cluster.begin_move(slot_of(&cluster, "foo"), 2, 0);
    // Both masters now redirect to each other.
    cluster.nodes[0].command(&format!("CLUSTER SETSLOT {} STABLE", slot_of(&cluster, "foo")));
    let error = limiter.check("foo", &policy(), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
