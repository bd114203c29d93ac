//! Checks on a cluster: batching within a slot, and atomicity across slots.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{sync::Arc, thread};

use tokio::task::JoinSet;
use tollgate::{Algorithm, Check, Limiter, ManualClock, Policy, RedisStore, clock::Clock, redis};

use super::cluster::{connected, limiter};
use super::{calls, policy};
use crate::support::cluster::{Cluster, plain_key};
use crate::support::redis_server::RedisServer;

/// "bar" is in a slot of the first node and is committed before "foo", in a slot of the third.
const FIRST: &str = "bar";
const LAST: &str = "foo";

async fn spent(limiter: &Limiter, key: &str, policy: &Policy) -> u64 {
    policy.limit() - limiter.peek(key, policy).await.unwrap().available().unwrap()
}

fn evalsha_calls(cluster: &Cluster) -> u64 {
    cluster.nodes.iter().map(|node| calls(node, "evalsha")).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_check_refunds_its_charges_in_other_slots() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow] {
        // A window long enough that none ends during the test.
        let policy = |name, limit| Policy::new(name, limit, Duration::from_secs(86_400 * 365)).unwrap();
        let wide = policy("wide", 100_000).with_algorithm(algorithm);
        let scarce = policy("scarce", 100).with_algorithm(algorithm);
        let unrelated = 7;
        assert!(limiter.check(FIRST, &wide, unrelated).await.unwrap().is_allowed());
        let mut burst = JoinSet::new();
        for task in 0..300_u64 {
            let (limiter, wide, scarce) = (limiter.clone(), wide.clone(), scarce.clone());
            burst.spawn(async move {
                // One check in six charges only the scarce policy; the others charge both.
                let check = match task % 6 {
                    0 => Check::new(LAST, &scarce, 1),
                    _ => Check::new(LAST, &scarce, 1).and(FIRST, &wide, 3),
                };
                (task % 6 > 0, limiter.check_all(check).await.unwrap().is_allowed())
            });
        }
        let admitted: Vec<_> = burst.join_all().await.into_iter().filter(|(_, allowed)| *allowed).collect();
        let pairs = u64::try_from(admitted.iter().filter(|(both, _)| *both).count()).unwrap();
        assert_eq!((admitted.len(), spent(&limiter, LAST, &scarce).await), (100, 100), "{algorithm:?}");
        // The denial returns before the refund is executed.
        let start = Instant::now();
        while spent(&limiter, FIRST, &wide).await != unrelated + 3 * pairs {
            let counted = spent(&limiter, FIRST, &wide).await;
            assert!(start.elapsed() < Duration::from_secs(5), "{algorithm:?}: {pairs} pairs, {counted} counted");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(spent(&limiter, FIRST, &wide).await, unrelated + 3 * pairs, "{algorithm:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_holds_in_every_slot_while_checks_commit_and_refund() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    // Either policy may deny. A bucket refunds no more than it has not refilled since.
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::TokenBucket] {
        let one = Policy::per_day("one", 50).unwrap().with_algorithm(algorithm);
        let other = Policy::per_day("other", 60).unwrap().with_algorithm(algorithm);
        let mut burst = JoinSet::new();
        for task in 0..200_u64 {
            let (limiter, one, other) = (limiter.clone(), one.clone(), other.clone());
            burst.spawn(async move {
                let check = match task % 4 {
                    0 => Check::new(FIRST, &one, 1),
                    1 => Check::new(LAST, &other, 1),
                    _ => Check::new(FIRST, &one, 1).and(LAST, &other, 1),
                };
                (task % 4, limiter.check_all(check).await.unwrap().is_allowed())
            });
        }
        let admitted: Vec<_> = burst.join_all().await.into_iter().filter(|(_, allowed)| *allowed).collect();
        let of = |kind| admitted.iter().filter(|(admitted, _)| *admitted != kind).count();
        assert!(of(1) <= 50 && of(0) <= 60, "{algorithm:?}: {} and {} admitted", of(1), of(0));
        // Refunds may be in flight: the remaining units are admitted, and no more.
        let mut rest = 0;
        while limiter.check(FIRST, &one, 1).await.unwrap().is_allowed() {
            rest += 1;
        }
        assert!(of(1) + rest <= 50, "{algorithm:?}: {} and {rest} admitted", of(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_refunded_than_was_charged_while_the_slot_moves() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let wide = Policy::per_day("wide", 1_000_000).unwrap();
    // "a" is in a higher slot than "foo", so it is committed last. All tasks contend for one unit per 10 ms.
    let scarce = Policy::new("scarce", 1, Duration::from_millis(10)).unwrap();
    let slot = cluster.slot_of(&plain_key(LAST, &wide)).0;
    assert!(slot < cluster.slot_of(&plain_key("a", &scarce)).0);
    let stop = Arc::new(AtomicBool::new(false));
    let mut contenders = JoinSet::new();
    for _ in 0..8 {
        let (limiter, wide, scarce, stop) = (limiter.clone(), wide.clone(), scarce.clone(), Arc::clone(&stop));
        contenders.spawn(async move {
            let mut admitted = 0;
            while !stop.load(Ordering::Relaxed) {
                let check = Check::new(LAST, &wide, 1).and("a", &scarce, 1);
                admitted += u64::from(limiter.check_all(check).await.is_ok_and(|decision| decision.is_allowed()));
            }
            admitted
        });
    }
    let moves = tokio::task::spawn_blocking(move || {
        for (from, to) in [(2, 0), (0, 1), (1, 2)] {
            cluster.move_slot(slot, from, to);
        }
        cluster
    });
    let _cluster = moves.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let admitted: u64 = contenders.join_all().await.into_iter().sum();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let counted = spent(&limiter, LAST, &wide).await;
    assert!(admitted > 0 && counted >= admitted, "{admitted} admitted, {counted} counted");
}

#[tokio::test]
async fn a_denial_across_slots_charges_nothing_and_its_retry_after_is_exact() {
    let cluster = Cluster::start();
    let clock = ManualClock::default();
    let builder = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(1));
    let limiter = Limiter::new(builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    connected(&limiter).await;
    let policy = |name, seconds| Policy::new(name, 10, Duration::from_secs(seconds)).unwrap();
    let (short, long, idle) = (policy("short", 60), policy("long", 90), policy("idle", 60));
    for _ in 0..10 {
        assert!(limiter.check(FIRST, &short, 1).await.unwrap().is_allowed());
        assert!(limiter.check(LAST, &long, 1).await.unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
    }
    // Four units of the first policy free up 53 s from now, two of the last policy 81 s from now.
    let check = || Check::new(FIRST, &short, 4).and("k", &idle, 5).and(LAST, &long, 2);
    let before = evalsha_calls(&cluster);
    let denied = limiter.check_all(check()).await.unwrap();
    assert_eq!(evalsha_calls(&cluster) - before, 3, "a call for each slot");
    let waits: Vec<_> = denied.policies().iter().map(|policy| policy.retry_after).collect();
    assert_eq!(waits, [Some(Duration::from_secs(53)), None, Some(Duration::from_secs(81))]);
    assert_eq!(denied.policies().iter().map(|policy| policy.available).collect::<Vec<_>>(), [0, 10, 0]);
    clock.set_us(clock.now_us() + 81_000_000 - 1);
    assert!(!limiter.check_all(check()).await.unwrap().is_allowed());
    clock.advance(Duration::from_micros(1));
    let allowed = limiter.check_all(check()).await.unwrap();
    assert!(allowed.is_allowed());
    assert_eq!(allowed.policies().iter().map(|policy| policy.available).collect::<Vec<_>>(), [6, 5, 0]);
}

#[tokio::test]
async fn rejected_cost_is_counted_in_every_slot_whichever_slot_denies() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let counting = Policy::per_hour("counting", 100).unwrap().with_denials_counted(true);
    let (plain, full) = (Policy::per_hour("plain", 100).unwrap(), Policy::per_hour("full", 1).unwrap());
    for key in [FIRST, LAST] {
        assert!(limiter.check(key, &full, 1).await.unwrap().is_allowed());
        let check = Check::new(FIRST, &counting, 5).and(LAST, &counting, 5).and("k", &plain, 5);
        assert!(!limiter.check_all(check.and(key, &full, 1)).await.unwrap().is_allowed());
    }
    let counted = [spent(&limiter, FIRST, &counting).await, spent(&limiter, LAST, &counting).await];
    assert_eq!((counted, spent(&limiter, "k", &plain).await), ([10, 10], 0));
}

#[tokio::test]
async fn concurrent_checks_in_one_slot_share_calls_and_a_single_check_is_one_call() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let before = evalsha_calls(&cluster);
    for _ in 0..20 {
        let _ = limiter.check(FIRST, &policy(), 1).await.unwrap();
    }
    assert_eq!(evalsha_calls(&cluster) - before, 20);
    let mut burst = JoinSet::new();
    for _ in 0..1_000 {
        let limiter = limiter.clone();
        burst.spawn(async move { assert!(limiter.check(FIRST, &policy(), 1).await.unwrap().is_allowed()) });
    }
    burst.join_all().await;
    let shared = evalsha_calls(&cluster) - before - 20;
    assert!(shared < 100, "{shared} calls for 1 000 checks");
    assert_eq!(spent(&limiter, FIRST, &policy()).await, 1_020);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_slot_on_a_hanging_master_delays_no_other_slot() {
    let cluster = Cluster::start();
    let urls: Vec<_> = cluster.nodes.iter().map(RedisServer::url).collect();
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(30));
    let limiter = Limiter::new(builder.open_cluster(urls.iter().map(String::as_str)).unwrap());
    connected(&limiter).await;
    // The master executes no script before the others are answered and the whole flood is queued.
    cluster.nodes[2].command("CLIENT PAUSE 60000 WRITE");
    let queued = Arc::new(AtomicU64::new(0));
    let mut flood = JoinSet::new();
    for _ in 0..10_000 {
        let (limiter, queued) = (limiter.clone(), Arc::clone(&queued));
        flood.spawn(async move {
            queued.fetch_add(1, Ordering::Relaxed);
            limiter.check(LAST, &policy(), 1).await.is_ok()
        });
    }
    let mut others = JoinSet::new();
    for _ in 0..200 {
        let limiter = limiter.clone();
        others.spawn(async move { assert!(limiter.check(FIRST, &policy(), 1).await.unwrap().is_allowed()) });
    }
    others.join_all().await;
    while queued.load(Ordering::Relaxed) < 10_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster.nodes[2].command("CLIENT UNPAUSE");
    let answered = flood.join_all().await.into_iter().filter(|answered| *answered).count();
    // The lane of the hot slot was full, with up to 32 calls of 128 in flight; the rest failed at once.
    assert!((4_050..8_700).contains(&answered), "{answered}");
    assert_eq!(spent(&limiter, LAST, &policy()).await, u64::try_from(answered).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_counts_the_denials_of_its_own_slot() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let (scarce, ample) = (Policy::per_hour("p", 1).unwrap(), Policy::per_hour("p", 100).unwrap());
    let with_ban = |policy: Policy| policy.ban_after(3, Duration::from_secs(600));
    let (scarce, ample) = (with_ban(scarce), with_ban(ample));
    for (full, free) in [(FIRST, LAST), (LAST, FIRST)] {
        for key in [full, free] {
            limiter.reset(key, &scarce).await.unwrap();
        }
        let both = || Check::new(full, &scarce, 1).and(free, &ample, 1);
        assert!(limiter.check_all(both()).await.unwrap().is_allowed());
        for denial in 1..=3 {
            let decision = limiter.check_all(both()).await.unwrap();
            let [refused, fits] = decision.policies() else { panic!("{decision:?}") };
            assert!(!decision.is_allowed() && refused.violated && !fits.violated);
            assert_eq!((refused.ban.is_some(), fits.ban, fits.available), (denial == 3, None, 99), "{denial}");
        }
        let peeked = limiter.peek(full, &scarce).await.unwrap();
        assert!(peeked.policies()[0].ban.is_some_and(|left| left > Duration::from_secs(590)));
    }
}

/// Keeps a server busy until `stop` is set, so that every command takes some milliseconds.
fn keep_busy(server: &RedisServer, stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let (mut connection, stop) = (server.connection(), Arc::clone(stop));
    thread::spawn(move || {
        let mut slow = redis::cmd("EVAL");
        slow.arg("for step = 1, 1000000 do end").arg(0);
        while !stop.load(Ordering::Relaxed) && slow.exec(&mut connection).is_ok() {}
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refunded_cost_can_be_spent_at_once_by_a_check_that_was_denied() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let stop = Arc::default();
    let slow = keep_busy(&cluster.nodes[2], &stop);
    let mut refunded = 0;
    for round in 0..20 {
        let policy = |name| Policy::per_day(format!("{name}{round}"), 1).unwrap();
        let (held, scarce) = (policy("held"), policy("scarce"));
        // Both checks fit when evaluated. The faster one takes the scarce unit, so the other is refunded.
        let both = limiter.check_all(Check::new(FIRST, &held, 1).and(LAST, &scarce, 1));
        let faster = limiter.check(LAST, &scarce, 1);
        let (both, faster) = (tokio::spawn(both), tokio::spawn(faster));
        while !both.is_finished() && spent(&limiter, FIRST, &held).await == 0 {}
        let denied = !both.is_finished() && !limiter.check(FIRST, &held, 1).await.unwrap().is_allowed();
        let is_refused = both.await.unwrap().is_ok_and(|decision| !decision.is_allowed());
        // On a busy machine a check may get no verdict.
        if faster.await.unwrap().is_err() || !is_refused || !denied {
            continue;
        }
        let start = Instant::now();
        while spent(&limiter, FIRST, &held).await > 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "not refunded");
        }
        refunded += 1;
        assert!(limiter.check(FIRST, &held, 1).await.unwrap().is_allowed(), "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    slow.join().unwrap();
    assert!(refunded > 0, "no check was denied by a charge that was refunded");
}
