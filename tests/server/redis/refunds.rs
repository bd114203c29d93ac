//! Checks of several slots that are not admitted, however they end: what they have charged is refunded.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{pin::pin, sync::Arc, task::Poll, thread};

use tokio::{runtime, task::JoinSet};
use tollgate::{Algorithm, Calendar, Check, Limiter, Policy, RedisStore};

use super::cluster::{connected, limiter};
use crate::support::cluster::{Cluster, plain_key};
use crate::support::random::Random;

/// "bar" is in a slot of the first node and is committed before "foo", in a slot of the third.
const FIRST: &str = "bar";
const LAST: &str = "foo";
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];

/// A policy with a window long enough that none ends during the test, and that no bucket refills a unit.
fn policy(algorithm: Algorithm) -> Policy {
    let policy = Policy::new("pair", 50_000, Duration::from_secs(86_400 * 365)).unwrap();
    policy.with_algorithm(algorithm)
}

fn pair(policy: &Policy) -> Check {
    Check::new(FIRST, policy, 1).and(LAST, policy, 1)
}

/// Waits until both keys are charged exactly what was admitted.
async fn assert_charged(limiter: &Limiter, policy: &Policy, admitted: u64, what: &str) {
    let spent = async |key| match limiter.peek(key, policy).await {
        Ok(decision) => policy.limit() - decision.available().unwrap(),
        Err(_) => u64::MAX,
    };
    let start = Instant::now();
    loop {
        let charged = (spent(FIRST).await, spent(LAST).await);
        if charged == (admitted, admitted) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(15), "{what}: {admitted} admitted, {charged:?} charged");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Polls a future this number of times, and drops it unless it has ended by then.
pub(super) async fn polled<F: Future>(future: F, times: u64) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(move |cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_3_a_caller_that_goes_away_at_any_point_leaves_no_charge_in_any_slot() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let mut random = Random(36);
    let calendar = Policy::calendar("pair", 50_000, Calendar::yearly()).unwrap();
    for policy in ALGORITHMS.map(policy).into_iter().chain([calendar]) {
        let (mut admitted, mut left) = (0, 0);
        for _ in 0..40 {
            let mut callers = JoinSet::new();
            for _ in 0..10 {
                let (check, times) = (limiter.check_all(pair(&policy)), 1 + random.below(8));
                callers.spawn(polled(check, times));
            }
            for answer in callers.join_all().await {
                match answer {
                    Some(decision) => admitted += u64::from(decision.unwrap().is_allowed()),
                    None => left += 1,
                }
            }
        }
        assert!(left > 50 && admitted > 50, "{left} left, {admitted} admitted");
        assert_charged(&limiter, &policy, admitted, &format!("{policy:?}, {left} left")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_3_a_node_that_refuses_to_write_leaves_no_charge_in_other_slots() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let policy = policy(Algorithm::SlidingWindowLog);
    assert!(limiter.check_all(pair(&policy)).await.unwrap().is_allowed());
    for (refuse, accept) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("CONFIG SET min-replicas-to-write 3", "CONFIG SET min-replicas-to-write 0"),
    ] {
        cluster.nodes[2].command(refuse);
        for _ in 0..50 {
            assert!(limiter.check_all(pair(&policy)).await.is_err());
        }
        cluster.nodes[2].command(accept);
        assert_charged(&limiter, &policy, 1, refuse).await;
    }
}

/// While a slot moves, each key is asked alone, and its commit has no receipt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_3_a_master_that_refuses_to_write_leaves_no_charge_with_the_other_one_while_a_slot_moves() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let [moved, left] = ["moved", "left"].map(|name| Policy::per_hour(name, 100).unwrap());
    let both = || limiter.check_all(Check::new(LAST, &moved, 1).and(LAST, &left, 1));
    assert!(both().await.unwrap().is_allowed());
    let key = plain_key(LAST, &moved);
    cluster.begin_move(cluster.slot_of(&key).0, 2, 0);
    let reply = cluster.nodes[2].command(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", cluster.nodes[0].port()));
    assert!(reply.is_empty(), "{reply}");
    cluster.nodes[2].command("CONFIG SET maxmemory 1");
    assert!(both().await.is_err());
    let start = Instant::now();
    while limiter.peek(LAST, &moved).await.ok().and_then(|peek| peek.available()) != Some(99) {
        assert!(start.elapsed() < Duration::from_secs(15), "the unit of the other policy is lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_3_a_commit_of_unknown_fate_is_refunded_when_its_node_answers_again() {
    let cluster = Cluster::start();
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_millis(150));
    let limiter = Limiter::new(builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    connected(&limiter).await;
    let policy = policy(Algorithm::SlidingWindowCounter);
    let (admitted, failed, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::default());
    let mut load = JoinSet::new();
    for _ in 0..16 {
        let (limiter, policy, admitted, failed) =
            (limiter.clone(), policy.clone(), Arc::clone(&admitted), Arc::clone(&failed));
        let stop: Arc<AtomicBool> = Arc::clone(&stop);
        load.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                match limiter.check_all(pair(&policy)).await {
                    Ok(decision) => admitted.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed),
                    Err(_) => failed.fetch_add(1, Ordering::Relaxed),
                };
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
    for node in [2, 0, 2] {
        tokio::time::sleep(Duration::from_millis(150)).await;
        cluster.nodes[node].signal("STOP");
        tokio::time::sleep(Duration::from_millis(500)).await;
        cluster.nodes[node].signal("CONT");
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::Relaxed);
    load.join_all().await;
    let (admitted, failed) = (admitted.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
    assert!(admitted > 50 && failed > 0, "{admitted} admitted, {failed} failed");
    assert_charged(&limiter, &policy, admitted, &format!("{failed} failed")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_15_a_runtime_that_ends_during_commits_leaves_no_charge_in_any_slot() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let policy = policy(Algorithm::FixedWindow);
    let admitted = Arc::new(AtomicU64::new(0));
    let mut random = Random(37);
    for _ in 0..30 {
        let (limiter, policy, admitted) = (limiter.clone(), policy.clone(), Arc::clone(&admitted));
        let pause = Duration::from_micros(random.below(3_000));
        let ended = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                // Dials the nodes.
                while limiter.peek(FIRST, &policy).await.is_err() || limiter.peek(LAST, &policy).await.is_err() {}
                for _ in 0..20 {
                    let (check, admitted) = (limiter.check_all(pair(&policy)), Arc::clone(&admitted));
                    tokio::spawn(async move {
                        if check.await.is_ok_and(|decision| decision.is_allowed()) {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                let end = Instant::now() + pause;
                while Instant::now() < end {
                    tokio::task::yield_now().await;
                }
            });
        });
        ended.join().unwrap();
    }
    // The next use of any runtime sends what the others have left.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _ = limiter.check_all(pair(&policy)).await.unwrap();
    let admitted = admitted.load(Ordering::Relaxed) + 1;
    assert_charged(&limiter, &policy, admitted, "30 runtimes have ended").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_by_hand_in_one_slot_counts_no_rejection_in_others() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let counting = Policy::per_hour("counting", 100).unwrap().with_denials_counted(true);
    let plain = Policy::per_hour("plain", 100).unwrap();
    for (banned, other) in [(FIRST, LAST), (LAST, FIRST)] {
        limiter.ban(banned, &plain, Duration::from_secs(600)).await.unwrap();
        for _ in 0..5 {
            let check = Check::new(banned, &plain, 1).and(other, &counting, 3);
            assert!(!limiter.check_all(check).await.unwrap().is_allowed());
        }
        assert_eq!(limiter.peek(other, &counting).await.unwrap().available(), Some(100), "{other}");
    }
}
