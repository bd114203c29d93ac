//! Hash tags on a cluster: the keys of many subjects share a few slots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;
use tollgate::{Check, Limiter, Policy, RedisStore, store::RedisStoreBuilder};

use super::cluster::{connected, limiter};
use super::{calls, policy};
use crate::support::cluster::{Cluster, plain_key};
use crate::support::says;

fn store(cluster: &Cluster, set: impl Fn(RedisStoreBuilder) -> RedisStoreBuilder) -> RedisStore {
    let builder = set(RedisStore::builder().plain_keys().deadline(Duration::from_secs(1)));
    builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap()
}

fn evalsha_calls(cluster: &Cluster) -> u64 {
    cluster.nodes.iter().map(|node| calls(node, "evalsha")).sum()
}

#[tokio::test]
async fn all_policies_of_a_key_are_in_the_slot_of_its_group() {
    let cluster = Cluster::start();
    for tags in [Some(48), Some(1), Some(1024), None] {
        let store = store(&cluster, |builder| builder.cluster_hash_tags(tags));
        let limiter = Limiter::new(store.clone());
        connected(&limiter).await;
        let [a, b] = ["a", "b"].map(|name| Policy::per_hour(name, 10).unwrap());
        let mut slots = BTreeSet::new();
        for key in (0..100).map(|number| format!("user:{number}")) {
            let both = Check::new(&key, &a, 1).and(&key, &b, 1);
            assert!(limiter.check_all(both).await.unwrap().is_allowed());
            let (redis_key, other) = (store.redis_key(&key, &a), store.redis_key(&key, &b));
            let (slot, node) = cluster.slot_of(&redis_key);
            assert_eq!(cluster.slot_of(&other).0, slot, "{redis_key} and {other}");
            let exists = cluster.nodes[node].command(&format!("EXISTS {redis_key} {other}"));
            assert!(exists.starts_with(":2"), "{redis_key}: {exists}");
            slots.insert(slot);
        }
        match tags {
            Some(tags) => assert!(slots.len() <= usize::from(tags), "{} slots with {tags} tags", slots.len()),
            None => assert!(slots.len() > 95, "{} slots", slots.len()),
        }
    }
}

#[test]
fn the_key_of_a_count_names_the_tag_on_a_cluster_only() {
    let nodes = || ["redis://127.0.0.1:1"];
    let builder = || RedisStore::builder().plain_keys();
    assert_eq!(plain_key("foo", &policy()), "tollgate:{48:14}{foo}:p:l5:1h");
    let with_tags = |tags: Option<u16>| builder().cluster_hash_tags(tags).open_cluster(nodes()).unwrap();
    assert_eq!(with_tags(None).redis_key("foo", &policy()), "tollgate:{foo}:p:l5:1h");
    let server = builder().cluster_hash_tags(48).open("redis://127.0.0.1:1").unwrap();
    assert_eq!(server.redis_key("foo", &policy()), "tollgate:{foo}:p:l5:1h");
    for tags in [0, 1025] {
        let error = builder().cluster_hash_tags(tags).open_cluster(nodes()).unwrap_err();
        says(error, &format!("{tags} hash tags are out of range; use 1 to 1024, "));
    }
}

#[tokio::test]
async fn instances_with_other_numbers_of_tags_count_separately_without_errors() {
    let cluster = Cluster::start();
    let instances = [Some(48), Some(96), None].map(|tags| {
        let store = store(&cluster, |builder| builder.cluster_hash_tags(tags));
        Limiter::new(store)
    });
    connected(&instances[0]).await;
    let policy = Policy::per_hour("p", 5).unwrap();
    for spent in 1..=5 {
        for limiter in &instances {
            for key in 0..50_u64 {
                let decision = limiter.check(key, &policy, 1).await.unwrap();
                assert_eq!(decision.available(), Some(5 - spent));
            }
        }
    }
    assert!(instances[0].reset(7, &policy).await.unwrap());
    let mut left = Vec::new();
    for limiter in &instances {
        left.push(limiter.peek(7, &policy).await.unwrap().available());
    }
    assert_eq!(left, [Some(5), Some(0), Some(0)]);
}

#[tokio::test]
async fn keys_of_one_group_are_checked_atomically_in_one_call() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let (wide, spent) = (Policy::per_hour("wide", 100).unwrap(), Policy::per_hour("spent", 1).unwrap());
    let group = cluster.slot_of(&plain_key("foo", &wide));
    let other = (0..).find(|key: &u64| cluster.slot_of(&plain_key(*key, &spent)) == group).unwrap();
    let both = || Check::new("foo", &wide, 1).and(other, &spent, 1);
    let before = evalsha_calls(&cluster);
    assert!(limiter.check_all(both()).await.unwrap().is_allowed());
    assert!(!limiter.check_all(both()).await.unwrap().is_allowed());
    assert_eq!(evalsha_calls(&cluster) - before, 2);
    assert_eq!(limiter.peek("foo", &wide).await.unwrap().available(), Some(99));
}

/// Runs `tasks` tasks that check different keys. Returns the checks per call.
async fn checks_per_call(cluster: &Cluster, limiter: &Limiter, tasks: u64) -> f64 {
    // Few, because other tests with short deadlines run at the same time.
    const EACH: u64 = 4;
    let before = evalsha_calls(cluster);
    let mut load = JoinSet::new();
    for task in 0..tasks {
        let limiter = limiter.clone();
        load.spawn(async move {
            for number in 0..EACH {
                let key = (task * EACH + number) % 10_000;
                assert!(limiter.check(key, &policy(), 1).await.unwrap().is_allowed());
            }
        });
    }
    load.join_all().await;
    (tasks * EACH) as f64 / (evalsha_calls(cluster) - before) as f64
}

/// On one thread, so that all tasks have sent their checks before the first answer is read.
#[tokio::test]
async fn checks_of_different_keys_share_calls() {
    let cluster = Cluster::start();
    let (grouped, single) = (limiter(&cluster), store(&cluster, |builder| builder.cluster_hash_tags(None)));
    let single = Limiter::new(single);
    connected(&grouped).await;
    connected(&single).await;
    let shared = checks_per_call(&cluster, &grouped, 1_000).await;
    let alone = checks_per_call(&cluster, &single, 1_000).await;
    assert!(shared > 4.0 && alone < 1.5, "{shared} checks in a call with groups, {alone} without");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_moves_under_load_loses_no_count_of_any_key() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let policy = Policy::per_day("moving", 1_000_000).unwrap();
    let (slot, _) = cluster.slot_of(&plain_key("foo", &policy));
    let is_in_group = |key: &u64| cluster.slot_of(&plain_key(*key, &policy)).0 == slot;
    let keys: Vec<u64> = (0..).filter(is_in_group).take(20).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for key in keys {
        let (limiter, policy, stop) = (limiter.clone(), policy.clone(), Arc::clone(&stop));
        load.spawn(async move {
            let (mut admitted, mut unknown, mut failed) = (0, 0, 0);
            while !stop.load(Ordering::Relaxed) {
                match limiter.check(key, &policy, 1).await {
                    Ok(decision) => admitted += u64::from(decision.is_allowed()),
                    Err(error) if error.may_have_charged() => unknown += 1,
                    Err(_) => failed += 1,
                }
            }
            (key, (admitted, unknown, failed))
        });
    }
    let cluster = tokio::task::spawn_blocking(move || {
        for (from, to) in [(2, 0), (0, 1), (1, 2)] {
            cluster.move_slot(slot, from, to);
        }
        cluster
    });
    let _cluster = cluster.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let counts: BTreeMap<_, _> = load.join_all().await.into_iter().collect();
    for (key, (admitted, unknown, failed)) in counts {
        let spent = 1_000_000 - limiter.peek(key, &policy).await.unwrap().available().unwrap();
        assert!(
            admitted > 10 && (admitted..=admitted + unknown).contains(&spent),
            "{key}: {admitted} admitted, {unknown} unknown, {spent} counted"
        );
        assert!(failed < 20, "{key}: {failed} failed");
    }
}
