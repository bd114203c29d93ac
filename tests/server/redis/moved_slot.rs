//! Migration of a slot to a master without the script.

use std::time::{Duration, Instant};

use tollgate::Limiter;

use super::cluster::{connected, limiter};
use super::policy;
use crate::support::cluster::{Cluster, plain_key};
use crate::support::{redis_server::RedisServer, until};

/// The slot of "foo", on the third node. These tests charge no key of the first node.
fn slot(cluster: &Cluster) -> u16 {
    cluster.slot_of(&plain_key("foo", &policy())).0
}

/// The number of MOVED and ASK replies that a server has sent.
fn redirections(server: &RedisServer) -> u64 {
    let stats = server.command("INFO errorstats");
    let of = |prefix: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(prefix));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    of("errorstat_MOVED:count=") + of("errorstat_ASK:count=")
}

/// Sends one more check and asserts that Redis counted it.
async fn assert_counted(limiter: &Limiter, spent: &mut u64) {
    *spent += 1;
    let decision = limiter.check("foo", &policy(), 1).await;
    let available = decision.as_ref().ok().and_then(|decision| decision.available());
    assert_eq!(available, Some(100_000 - *spent), "check {spent}: {decision:?}");
}

/// Asserts that every check succeeds, and that checks soon go directly to the new master.
async fn assert_followed(limiter: &Limiter, old: &RedisServer, mut spent: u64) {
    let start = Instant::now();
    loop {
        let before = redirections(old);
        for _ in 0..20 {
            assert_counted(limiter, &mut spent).await;
        }
        if redirections(old) == before {
            break;
        }
        // A slot map may come from a node that does not know of the migration yet.
        assert!(start.elapsed() < Duration::from_secs(5), "checks still go to the old master first");
    }
    assert!(!limiter.is_breaker_open());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_has_moved_to_a_master_without_the_script_is_followed() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let _ = limiter.check("foo", &policy(), 1).await.unwrap();
    cluster.move_slot(slot(&cluster), 2, 0);
    assert_followed(&limiter, &cluster.nodes[2], 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_the_script_that_is_made_the_master_is_followed() {
    let cluster = Cluster::start_with_replicas();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let _ = limiter.check("foo", &policy(), 1).await.unwrap();
    let (old, new) = (&cluster.nodes[2], &cluster.nodes[5]);
    assert!(old.command("WAIT 1 5000").starts_with(":1"));
    new.command("CLUSTER FAILOVER");
    until("the roles are swapped", || new.command("ROLE").contains("master") && old.command("ROLE").contains("slave"));
    assert_followed(&limiter, old, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_moving_to_a_master_without_the_script_is_followed() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    cluster.begin_move(slot(&cluster), 2, 0);
    // The old master does not hold the key, so it redirects each check (ASK) and keeps the slot.
    let mut spent = 0;
    for _ in 0..20 {
        assert_counted(&limiter, &mut spent).await;
    }
    cluster.end_move(slot(&cluster), 2, 0);
    assert_followed(&limiter, &cluster.nodes[2], spent).await;
}
