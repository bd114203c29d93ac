//! Clusters: slots, migrations, and the loss of a master.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::observe::{Event, Observer, Warning};
use tollgate::{Check, Limiter, Policy, RedisStore};

use super::{address::MINIMAL_ACL, policy};
use crate::support::cluster::{Cluster, plain_key};
use crate::support::recorder::assert_warnings;
use crate::support::redis_server::{RedisServer, calls};
use crate::support::{asserts_times, says, until};

pub(crate) fn limiter(cluster: &Cluster) -> Limiter {
    // With plain keys, the tests know the slot of a key. Tests of silent masters wait for the deadline.
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(2));
    Limiter::new(builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap())
}

pub(crate) async fn connected(limiter: &Limiter) {
    let start = Instant::now();
    while limiter.peek("k", &policy()).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_all_slots_are_counted() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    for key in 0..60_u64 {
        let policy = Policy::per_hour("p", 2).unwrap();
        for allowed in [true, true, false] {
            assert_eq!(limiter.check(key, &policy, 1).await.unwrap().is_allowed(), allowed);
        }
        let pair =
            Check::new(key, &Policy::per_hour("a", 3).unwrap(), 1).and(key, &Policy::per_hour("b", 3).unwrap(), 1);
        assert!(limiter.check_all(pair).await.unwrap().is_allowed());
    }
    assert!(cluster.nodes.iter().all(|node| !node.command("DBSIZE").starts_with(":0")), "all nodes have keys");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_loses_no_count() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let policy = Policy::per_hour("moving", 1_000_000).unwrap();
    // "foo" is in a slot of the third node.
    let (slot, _) = cluster.slot_of(&plain_key("foo", &policy));
    let stop = Arc::new(AtomicBool::new(false));
    let load = |check: Check| {
        let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let (mut admitted, mut unknown, mut failed) = (0, 0, 0);
            while !stop.load(Ordering::Relaxed) {
                match limiter.check_all(check.clone()).await {
                    Ok(decision) => admitted += u64::from(decision.is_allowed()),
                    Err(error) if error.may_have_charged() => unknown += 1,
                    Err(_) => failed += 1,
                }
            }
            (admitted, unknown, failed)
        })
    };
    let single = load(Check::new("foo", &policy, 1));
    // Also charges a key in a slot that does not move, which is committed first.
    let both = load(Check::new("foo", &policy, 1).and("bar", &policy, 1));
    let cluster = tokio::task::spawn_blocking(move || {
        for (from, to) in [(2, 0), (0, 1), (1, 2)] {
            cluster.move_slot(slot, from, to);
            std::thread::sleep(Duration::from_millis(50));
        }
        cluster
    });
    let _cluster = cluster.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let (single, both) = (single.await.unwrap(), both.await.unwrap());
    let (foo, failed) = ((single.0 + both.0, single.1 + both.1), single.2 + both.2);
    for (key, (admitted, unknown)) in [("foo", foo), ("bar", (both.0, both.1))] {
        let spent = 1_000_000 - limiter.peek(key, &policy).await.unwrap().available().unwrap();
        let possible = admitted..=admitted + unknown;
        assert!(
            admitted > 10 && possible.contains(&spent),
            "{key}: {admitted} admitted, {unknown} unknown, {spent} counted"
        );
    }
    assert!(failed < 20, "{failed} failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_master_affects_only_its_own_slots_until_it_returns() {
    let mut cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    assert!(limiter.check("foo", &policy(), 1).await.is_ok() && limiter.check("bar", &policy(), 1).await.is_ok());
    cluster.nodes[2].kill();
    assert!(limiter.check("foo", &policy(), 1).await.is_err());
    let start = Instant::now();
    while limiter.check("bar", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5), "the slots of other masters are unavailable too");
    }
    cluster.nodes[2].restart();
    let start = Instant::now();
    while limiter.check("foo", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5), "did not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_is_found_and_has_the_counts_of_the_lost_master() {
    let mut cluster = Cluster::start_with_replicas();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let check = || Check::new("foo", &policy(), 1).and("bar", &policy(), 1);
    assert!(limiter.check_all(check()).await.unwrap().is_allowed());
    assert!(cluster.nodes[2].command("WAIT 1 5000").starts_with(":1"));
    cluster.nodes[2].kill();
    let start = Instant::now();
    let decision = loop {
        match limiter.check_all(check()).await {
            Ok(decision) => break decision,
            Err(_) => assert!(start.elapsed() < Duration::from_secs(15), "the promoted replica was not found"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(decision.is_allowed() && decision.policies()[0].available == 99_998, "{decision:?}");
}

/// Loads keys of all masters while the third master fails, and asserts that the keys of the other masters are
/// unaffected.
async fn assert_other_masters_unaffected(what: &str, fail: impl FnOnce(&mut Cluster)) {
    /// Slots below this one share no failure domain with a slot of the third master.
    const OTHERS: u16 = 10_752;
    let mut cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let keys: Vec<_> = (0..96_u64).map(|key| (key, cluster.slot_of(&plain_key(key, &policy())).0 < OTHERS)).collect();
    fail(&mut cluster);
    let end = Instant::now() + Duration::from_secs(3);
    let mut load = JoinSet::new();
    for (key, is_other) in keys {
        let limiter = limiter.clone();
        load.spawn(async move {
            let (mut answered, mut failed, mut longest) = (0, 0, Duration::ZERO);
            while Instant::now() < end {
                let start = Instant::now();
                let result = limiter.check(key, &policy(), 1).await;
                if is_other {
                    longest = longest.max(start.elapsed());
                    answered += u64::from(result.is_ok());
                    failed += u64::from(result.is_err());
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (answered, failed, longest)
        });
    }
    let sum = |sum: (u64, u64, Duration), one: (u64, u64, Duration)| (sum.0 + one.0, sum.1 + one.1, sum.2.max(one.2));
    let (answered, failed, longest) = load.join_all().await.into_iter().fold((0, 0, Duration::ZERO), sum);
    assert!(answered > 0 && failed == 0, "{what}: {answered} answered, {failed} not");
    // Far below the deadline of one second.
    let is_quick = answered > 5_000 && longest < Duration::from_millis(300);
    assert!(!asserts_times() || is_quick, "{what}: {answered} answered, a check waited for {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_killed_under_load_does_not_affect_other_masters() {
    assert_other_masters_unaffected("killed", |cluster| cluster.nodes[2].kill()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_frozen_under_load_does_not_affect_other_masters() {
    assert_other_masters_unaffected("frozen", |cluster| cluster.nodes[2].signal("STOP")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_master_does_not_cause_a_dial_for_every_check() {
    let mut cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(1)).breaker(None);
    let limiter = Limiter::new(builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    connected(&limiter).await;
    assert!(limiter.check("foo", &policy(), 1).await.is_ok());
    let before = cluster.nodes[0].accepted_connections();
    cluster.nodes[2].kill();
    for _ in 0..200 {
        assert!(limiter.check("foo", &policy(), 1).await.is_err());
    }
    let dials = cluster.nodes[0].accepted_connections() - before;
    assert!(dials < 60, "{dials} dials to a node that was always up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_check_fails_on_idle_connections_that_the_nodes_closed() {
    let mut cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    for round in 0..3 {
        for key in 0..60_u64 {
            let result = limiter.check(key, &policy(), 1).await;
            assert!(result.is_ok(), "round {round}: {result:?}");
        }
        match round {
            // The second node is up again before the next check.
            1 => cluster.nodes[1].restart(),
            _ => {
                for node in &cluster.nodes {
                    assert!(!node.command("CLIENT KILL TYPE normal").starts_with(":0"), "nothing was closed");
                }
            }
        }
        // Another thread notices the closed connections.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let is_up = |node: &RedisServer| node.command("CLUSTER INFO").contains("cluster_state:ok");
        until("the cluster is complete again", || cluster.nodes.iter().all(is_up));
    }
}

#[tokio::test]
async fn the_documented_minimal_acl_is_enough_on_a_cluster() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.command(&format!("ACL SETUSER gate on >secret {MINIMAL_ACL} +cluster|slots +asking"));
    }
    let url = cluster.nodes[0].url().replace("//", "//gate:secret@");
    let store = RedisStore::builder().deadline(Duration::from_secs(1)).open_cluster([url.as_str()]).unwrap();
    let limiter = Limiter::new(store);
    connected(&limiter).await;
    for key in 0..20_u64 {
        let _ = limiter.check(key, &policy(), 1).await.unwrap();
    }
}

#[test]
fn no_node_a_socket_and_a_database_are_configuration_errors() {
    let node = "redis://127.0.0.1:1";
    let lists = [
        &[][..],
        &["unix:///tmp/redis.sock"],
        &[node, "unix:///tmp/redis.sock"],
        &[node, "redis://host/3"],
        &["nonsense"],
    ];
    for nodes in lists {
        let error = RedisStore::builder().open_cluster(nodes.iter().copied()).unwrap_err();
        says(error, "the Redis URL (not shown, it may hold a password) cannot be used: ");
    }
}

/// Observer that forwards warnings to a channel.
pub(crate) struct Warnings(pub(crate) mpsc::Sender<Warning>);

impl Observer for Warnings {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(warning) = event.warning() {
            let _ = self.0.send(warning.clone());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_master_is_asked_for_its_eviction_policy() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.command("CONFIG SET maxmemory-policy allkeys-lru");
    }
    let (sender, warnings) = mpsc::channel();
    let limiter = limiter(&cluster).with_observer(Warnings(sender));
    connected(&limiter).await;
    let warning = warnings.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_warnings(&[warning], &[("eviction", "allkeys-lru")]);
    connected(&limiter).await;
    assert_eq!(cluster.nodes.iter().map(|node| calls(node, "info")).sum::<u64>(), 1);
}
