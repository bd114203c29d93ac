//! A slot on the move to a master that has never seen the script.

use std::time::{Duration, Instant};

use tollgate::Limiter;

use super::{
    cluster::{limiter, settled},
    policy,
};
use crate::support::{cluster::Cluster, redis_server::RedisServer, until};

/// "foo" is in slot 12182, of the third node; nothing that these tests check is on the first one.
const SLOT: u16 = 12_182;

/// How often a server has sent a client elsewhere.
fn redirections(server: &RedisServer) -> u64 {
    let stats = server.command("INFO errorstats");
    let of = |prefix: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(prefix));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    of("errorstat_MOVED:count=") + of("errorstat_ASK:count=")
}

/// One more check, which has to be counted.
async fn is_counted(limiter: &Limiter, spent: &mut u32) {
    *spent += 1;
    let decision = limiter.check("foo", &policy(), 1).await;
    let available = decision.as_ref().ok().and_then(|decision| decision.available());
    assert_eq!(available, Some(100_000 - *spent), "check {spent}: {decision:?}");
}

/// Every check is answered, and soon the new master is asked at once.
async fn is_followed(limiter: &Limiter, old: &RedisServer, mut spent: u32) {
    let start = Instant::now();
    loop {
        let before = redirections(old);
        for _ in 0..20 {
            is_counted(limiter, &mut spent).await;
        }
        if redirections(old) == before {
            break;
        }
        // A node that has not heard of the move may be asked for the map of slots; gossip takes its time.
        assert!(start.elapsed() < Duration::from_secs(5), "checks still go to the old master first");
    }
    assert!(!limiter.is_breaker_open());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_has_moved_to_a_master_without_the_script_is_followed() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    settled(&limiter).await;
    limiter.check("foo", &policy(), 1).await.unwrap();
    cluster.move_slot(SLOT, 2, 0);
    is_followed(&limiter, &cluster.nodes[2], 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_the_script_that_is_made_the_master_is_followed() {
    let cluster = Cluster::start_with_replicas();
    let limiter = limiter(&cluster);
    settled(&limiter).await;
    limiter.check("foo", &policy(), 1).await.unwrap();
    let (old, new) = (&cluster.nodes[2], &cluster.nodes[5]);
    assert!(old.command("WAIT 1 5000").starts_with(":1"));
    new.command("CLUSTER FAILOVER");
    until("the roles are switched", || new.command("ROLE").contains("master") && old.command("ROLE").contains("slave"));
    is_followed(&limiter, old, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_moving_to_a_master_without_the_script_is_followed() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    settled(&limiter).await;
    cluster.begin_move(SLOT, 2, 0);
    // The key is not there yet, so the old master sends each check to the new one and keeps the slot.
    let mut spent = 0;
    for _ in 0..20 {
        is_counted(&limiter, &mut spent).await;
    }
    cluster.end_move(SLOT, 2, 0);
    is_followed(&limiter, &cluster.nodes[2], spent).await;
}
