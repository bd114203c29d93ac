//! Policies with shards on real servers: shards on several nodes, and one budget of all shards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::{sync::Mutex, task::JoinSet};
use tollgate::{Check, ErrorKind, Limiter, Policy, RedisStore, decision::Source};

use super::{calls, cluster::connected};
use crate::support::judge::{Answer, Judge};
use crate::support::{cluster::Cluster, patient, redis_server::RedisServer};

/// A limiter whose checks all get verdicts, also when a busy machine delays them.
fn limiter(cluster: &Cluster) -> Limiter {
    Limiter::new(patient().plain_keys().open_cluster([cluster.nodes[0].url()]).unwrap())
}

/// The eight shards of this key are on all three nodes.
const HOT: &str = "hot";

fn evalsha_calls(cluster: &Cluster) -> u64 {
    cluster.nodes.iter().map(|node| calls(node, "evalsha")).sum()
}

fn per_hour(limit: u64, shards: u32) -> Policy {
    Policy::per_hour("p", limit).unwrap().with_shards(shards)
}

/// The results of many checks at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    admitted: u64,
    denied: u64,
    failed: u64,
}

/// Sends `checks` checks of one unit through each limiter, 32 at a time.
async fn load(limiters: &[Limiter], policy: &Policy, checks: u64) -> Tally {
    let mut tasks = JoinSet::new();
    for limiter in limiters {
        for task in 0..32 {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            tasks.spawn(async move {
                let mut tally = Tally::default();
                for _ in 0..checks / 32 + u64::from(task < checks % 32) {
                    match limiter.check(HOT, &policy, 1).await {
                        Ok(decision) if decision.is_allowed() => tally.admitted += 1,
                        Ok(_) => tally.denied += 1,
                        Err(_) => tally.failed += 1,
                    }
                }
                tally
            });
        }
    }
    tasks.join_all().await.into_iter().fold(Tally::default(), |sum, one| Tally {
        admitted: sum.admitted + one.admitted,
        denied: sum.denied + one.denied,
        failed: sum.failed + one.failed,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shards_of_a_key_are_on_several_nodes_and_a_reset_reaches_all_of_them() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let policy = per_hour(80, 8);
    assert_eq!(load(std::slice::from_ref(&limiter), &policy, 2_000).await.admitted, 80);
    let keys = |node: &RedisServer| node.command("KEYS *{(hot|*}:p(shards:8):l5:1h").matches("tollgate:").count();
    let keys = || cluster.nodes.iter().map(keys).collect::<Vec<_>>();
    assert!(keys().iter().all(|keys| *keys > 0) && keys().iter().sum::<usize>() == 8, "{:?}", keys());
    assert!(limiter.reset(HOT, &policy).await.unwrap());
    assert_eq!(keys(), [0, 0, 0]);
    assert!(!limiter.reset(HOT, &policy).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peek_asks_each_shard_once_and_charges_nothing() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let policy = per_hour(640, 64);
    assert!(limiter.check(HOT, &policy, 10).await.unwrap().is_allowed());
    let before = evalsha_calls(&cluster);
    let decision = limiter.peek(HOT, &policy).await.unwrap();
    assert_eq!((decision.available(), decision.policies().len()), (Some(10), 1));
    let sent = evalsha_calls(&cluster) - before;
    // Shards of one group of subjects share a call.
    assert!((20..=64).contains(&sent), "{sent} calls");
    assert_eq!(load(std::slice::from_ref(&limiter), &policy, 20_000).await.admitted, 630);
    assert_eq!(limiter.peek(HOT, &policy).await.unwrap().available(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peek_at_the_shards_of_many_keys_tells_of_each_on_a_server_and_on_a_cluster() {
    let (server, cluster) = (RedisServer::start(), Cluster::start());
    let on_server = Limiter::new(patient().plain_keys().open(&server.url()).unwrap());
    let policy = per_hour(640, 64);
    for limiter in [on_server, limiter(&cluster)] {
        connected(&limiter).await;
        limiter.record(3_u64, &policy, 640).await.unwrap();
        let check = (1..8_u64).fold(Check::new(0_u64, &policy, 10), |check, key| check.and(key, &policy, 10));
        let decision = limiter.peek_all(check).await.unwrap();
        let available: Vec<u64> = decision.policies().iter().map(|standing| standing.available).collect();
        assert_eq!((decision.is_allowed(), available), (false, vec![10, 10, 10, 0, 10, 10, 10, 10]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_two_stores_under_load_admit_the_limit_of_all_shards_and_hardly_deny_before() {
    const LIMIT: u64 = 4_003;
    let cluster = Cluster::start();
    let limiters = [limiter(&cluster), limiter(&cluster)];
    for limiter in &limiters {
        connected(limiter).await;
    }
    let policy = per_hour(LIMIT, 8);
    let below = load(&limiters, &policy, 1_600).await;
    assert_eq!((below.admitted + below.denied, below.failed), (3_200, 0));
    assert!(below.denied < 32, "{} of 3200 checks were denied at 80 % of the limit", below.denied);
    // Until all units are spent: checks that were denied while units were left.
    let (mut spent, mut early, mut checks) = (below.admitted, 0, 0);
    while spent < LIMIT {
        let round = load(&limiters, &policy, 25).await;
        assert_eq!(round.failed, 0);
        spent += round.admitted;
        early += round.denied;
        checks += 50;
        assert!(checks < 20_000, "{spent} units were found");
    }
    println!("{early} of {checks} checks were denied while units were left, within the last fifth of the limit");
    assert!(early < checks * 2 / 3, "{early} of {checks}");
    let over = load(&limiters, &policy, 1_000).await;
    assert_eq!((spent, over.admitted), (LIMIT, 0));
}

/// The masters are on one machine, so they share a clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_holds_in_every_window_for_all_shards_on_a_cluster() {
    const WINDOW: Duration = Duration::from_millis(400);
    let cluster = Cluster::start();
    let limiters = [limiter(&cluster), limiter(&cluster)];
    for limiter in &limiters {
        connected(limiter).await;
    }
    let policy = Policy::new("p", 300, WINDOW).unwrap().with_shards(8);
    let judge = Arc::new(Mutex::new(Judge::new(300, u64::try_from(WINDOW.as_micros()).unwrap())));
    let end = Instant::now() + 6 * WINDOW;
    let mut tasks = JoinSet::new();
    for limiter in &limiters {
        for _ in 0..8 {
            let (limiter, policy, judge) = (limiter.clone(), policy.clone(), Arc::clone(&judge));
            tasks.spawn(async move {
                while Instant::now() < end {
                    let decision = limiter.check(HOT, &policy, 1).await.unwrap();
                    if decision.is_allowed() {
                        let time = decision.time().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
                        let time_us = u64::try_from(time.as_micros()).unwrap();
                        judge.lock().await.answer(Answer { time_us, cost: 1, retry_after_us: None });
                    }
                }
            });
        }
    }
    tasks.join_all().await;
    let mut judge = judge.lock().await;
    judge.settle(u64::MAX);
    let found = judge.found();
    assert!(found.over == 0 && found.most > 200, "{found:?}");
    println!("{} units of 300 were admitted in the fullest window", found.most);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_8_a_lost_master_fails_only_the_checks_of_its_own_shards() {
    let mut cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let policy = per_hour(80_000, 8);
    assert_eq!(load(std::slice::from_ref(&limiter), &policy, 200).await.failed, 0);
    cluster.nodes[2].kill();
    let tally = load(std::slice::from_ref(&limiter), &policy, 2_000).await;
    // Each check asks one shard, and the lost master has some of them.
    assert!(tally.admitted > 200 && tally.failed > 20 && tally.denied == 0, "{tally:?}");
    cluster.nodes[2].restart();
    let start = Instant::now();
    while load(std::slice::from_ref(&limiter), &policy, 200).await.failed > 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "did not recover");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_that_are_spent_are_denied_from_memory() {
    let server = RedisServer::start();
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(1)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    let policy = per_hour(40, 8);
    assert_eq!(load(std::slice::from_ref(&limiter), &policy, 2_000).await.admitted, 40);
    let before = calls(&server, "evalsha");
    for _ in 0..200 {
        let denied = limiter.check(HOT, &policy, 1).await.unwrap();
        assert!(!denied.is_allowed() && denied.source() == Source::DenyCache);
    }
    assert_eq!(calls(&server, "evalsha"), before);
    // Without a future, a denial from memory suffices only if it is about both shards.
    assert!(!limiter.try_check(HOT, &policy, 1).unwrap().is_allowed());
    let other = limiter.try_check("other", &policy, 1).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::InvalidCall);
}
