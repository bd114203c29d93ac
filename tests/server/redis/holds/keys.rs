//! The keys of holds: what they are called, how long they live, and what becomes of holds without them.

use std::time::Duration;

use tollgate::store::{HoldChange, SettleAnswer, Store};
use tollgate::{Algorithm, Check, ErrorKind, ManualClock, Policy, policy::HoldSettings, redis};

use super::{answer, available, change, check, hold, with_clock};
use crate::support::{ALGORITHMS, redis_server::RedisServer};

fn tokens(algorithm: Algorithm) -> Policy {
    let policy = Policy::per_minute("tokens", 100).unwrap().with_algorithm(algorithm);
    policy.with_holds(HoldSettings::new().with_ttl(Duration::from_secs(30)))
}

fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.connection()).unwrap();
    keys.sort();
    keys
}

fn ttl(server: &RedisServer, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query(&mut server.connection()).unwrap()
}

#[tokio::test]
async fn law_6_the_holds_of_a_count_are_one_key_that_expires_and_leaves_with_its_last_hold() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    let policy = tokens(Algorithm::SlidingWindowLog);
    let first = hold(&store, "a", &policy, 10).await.unwrap();
    assert_eq!(keys(&server), ["tollgate:{a}:tokens(holds):l5:1m"]);
    // The last end, the window in which its charge would count, and a minute for clocks that are behind.
    assert!((89_000..=151_000).contains(&ttl(&server, "tollgate:{a}:tokens(holds):l5:1m")));
    let second = hold(&store, "a", &policy, 20).await.unwrap();
    assert_eq!(change(&store, &first, HoldChange::Settle(1)).await, SettleAnswer::Settled);
    assert_eq!(keys(&server), ["tollgate:{a}:tokens(holds):l5:1m", "tollgate:{a}:tokens:l5:1m"]);
    assert_eq!(change(&store, &second, HoldChange::Settle(0)).await, SettleAnswer::Settled);
    assert_eq!(keys(&server), ["tollgate:{a}:tokens:l5:1m"]);
    assert_eq!(available(&store, "a", &policy).await, 99);
    assert!(keys(&server).iter().all(|key| ttl(&server, key) > 0));
}

/// A hold whose time has passed is charged by the next check, which may come much later.
#[tokio::test]
async fn law_6_holds_that_have_ended_are_kept_while_their_charges_would_count() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    for (algorithm, hours) in ALGORITHMS.into_iter().zip([1, 2, 1, 2]) {
        let policy = Policy::per_hour("tokens", 100).unwrap().with_algorithm(algorithm).with_holds(HoldSettings::new());
        hold(&store, "a", &policy, 100).await.unwrap();
        let key = keys(&server).pop().unwrap();
        assert!(ttl(&server, &key) > hours * 3_600_000, "{algorithm:?}, {key}");
        server.command("FLUSHALL");
    }
}

/// Those that no check has ended yet have ended all the same.
#[tokio::test]
async fn a_hold_that_waits_for_its_end_behind_many_others_has_expired() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    let policy = tokens(Algorithm::SlidingWindowLog);
    let mut last = None;
    for _ in 0..70 {
        last = hold(&store, "a", &policy, 1).await;
        clock.advance(Duration::from_micros(1));
    }
    clock.advance(Duration::from_secs(30));
    let last = last.unwrap();
    assert_eq!(change(&store, &last, HoldChange::Settle(0)).await, SettleAnswer::Expired);
    assert_eq!(available(&store, "a", &policy).await, 30);
}

#[tokio::test]
async fn law_6_every_key_of_every_algorithm_expires_whatever_is_settled() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    for algorithm in ALGORITHMS {
        let policy = tokens(algorithm);
        let holds = [hold(&store, "a", &policy, 10).await.unwrap(), hold(&store, "a", &policy, 1).await.unwrap()];
        assert_eq!(change(&store, &holds[0], HoldChange::Settle(u32::MAX.into())).await, SettleAnswer::Settled);
        assert_eq!(change(&store, &holds[1], HoldChange::Renew).await, SettleAnswer::Settled);
        assert_eq!(available(&store, "a", &policy).await, 0, "{algorithm:?}");
    }
    let keys = keys(&server);
    assert_eq!(keys.len(), 8);
    for key in &keys {
        assert!(ttl(&server, key) > 0, "{key}");
    }
    // The hold beside the overdrawn bucket is charged when all that was overdrawn has flowed in, 81 years later.
    let (holds, bucket) = ("tollgate:{a}:tokens(holds):b3:1m", "tollgate:{a}:tokens:b3:1m");
    let refill_ms = i64::from(u32::MAX) * 600;
    assert!(ttl(&server, bucket) > refill_ms && ttl(&server, holds) > refill_ms);
}

#[tokio::test]
async fn a_reset_ends_the_holds_too() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    for algorithm in ALGORITHMS {
        let policy = tokens(algorithm);
        let open = hold(&store, "a", &policy, 10).await.unwrap();
        assert!(answer(store.reset(&"a".into(), &policy)).await.unwrap());
        assert_eq!(change(&store, &open, HoldChange::Settle(7)).await, SettleAnswer::Expired);
        assert_eq!(available(&store, "a", &policy).await, 100, "{algorithm:?}");
        assert!(!answer(store.reset(&"a".into(), &policy)).await.unwrap());
    }
}

#[tokio::test]
async fn holds_whose_key_is_gone_have_ended_and_fail_nothing() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    let policy = tokens(Algorithm::SlidingWindowLog);
    let open = hold(&store, "a", &policy, 60).await.unwrap();
    server.command("DEL tollgate:{a}:tokens(holds):l5:1m");
    assert_eq!(change(&store, &open, HoldChange::Renew).await, SettleAnswer::Expired);
    assert_eq!(change(&store, &open, HoldChange::Settle(60)).await, SettleAnswer::Expired);
    assert_eq!(available(&store, "a", &policy).await, 100);
    // A loaded script is lost as well.
    server.command("SCRIPT FLUSH");
    let open = hold(&store, "a", &policy, 60).await.unwrap();
    server.command("SCRIPT FLUSH");
    assert_eq!(change(&store, &open, HoldChange::Settle(60)).await, SettleAnswer::Settled);
    assert_eq!(available(&store, "a", &policy).await, 40);
}

#[tokio::test]
async fn a_value_of_another_type_fails_only_its_own_checks_and_changes() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    let policy = tokens(Algorithm::SlidingWindowLog);
    let open = hold(&store, "a", &policy, 60).await.unwrap();
    server.command("SET tollgate:{bad}:tokens(holds):l5:1m text");
    let refused = Check::hold("bad", &policy, 1);
    assert_eq!(answer(store.check(&refused)).await.unwrap_err().kind(), ErrorKind::BadKey);
    let pair = Check::new("b", &policy, 1).and("bad", &policy, 1);
    assert_eq!(answer(store.check(&pair)).await.unwrap_err().kind(), ErrorKind::BadKey);
    assert_eq!(available(&store, "b", &policy).await, 100);

    // The count has another type: the hold stays open, and is settled when the value is gone.
    server.command("SADD tollgate:{a}:tokens:l5:1m x");
    let settled = answer(store.change_hold(&open, HoldChange::Settle(5))).await;
    assert_eq!(settled.unwrap_err().kind(), ErrorKind::BadKey);
    server.command("DEL tollgate:{a}:tokens:l5:1m");
    assert_eq!(change(&store, &open, HoldChange::Settle(5)).await, SettleAnswer::Settled);
    assert_eq!(available(&store, "a", &policy).await, 95);
}

#[tokio::test]
async fn a_full_server_makes_no_hold_and_ends_the_open_ones() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    for algorithm in ALGORITHMS {
        let policy = tokens(algorithm);
        let open = [hold(&store, "a", &policy, 60).await.unwrap(), hold(&store, "a", &policy, 30).await.unwrap()];
        server.command("CONFIG SET maxmemory 1");
        let refused = answer(store.check(&Check::hold("a", &policy, 1))).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(answer(store.check(&Check::hold("new", &policy, 1))).await.is_err());
        assert_eq!(change(&store, &open[0], HoldChange::Settle(10)).await, SettleAnswer::Settled, "{algorithm:?}");
        server.command("CONFIG SET maxmemory 0");
        assert_eq!(available(&store, "a", &policy).await, 60, "{algorithm:?}");
        assert_eq!(change(&store, &open[1], HoldChange::Settle(0)).await, SettleAnswer::Settled);
        assert_eq!(available(&store, "a", &policy).await, 90, "{algorithm:?}");
        assert!(keys(&server).iter().all(|key| !key.contains("new") && ttl(&server, key) > 0));
        server.command("FLUSHALL");
    }
}

/// An expired hold leaves its set before it is charged, so it is charged at most once, and a full server permits both.
#[tokio::test]
async fn a_full_server_charges_holds_whose_time_has_passed() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    for algorithm in ALGORITHMS {
        let policy = tokens(algorithm);
        hold(&store, "a", &policy, 60).await.unwrap();
        clock.advance(Duration::from_secs(30));
        server.command("CONFIG SET maxmemory 1");
        assert_eq!(available(&store, "a", &policy).await, 40, "{algorithm:?}");
        server.command("CONFIG SET maxmemory 0");
        assert_eq!(available(&store, "a", &policy).await, 40, "{algorithm:?}");
    }
}

/// 1 000 holds of a process that was killed: once they have ended, they are in the way of nothing.
#[tokio::test]
async fn law_2_holds_that_have_ended_deny_no_check_however_many_they_are() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    for (released, algorithm) in [false, true].into_iter().flat_map(|kind| ALGORITHMS.map(|one| (kind, one))) {
        let holds = HoldSettings::new().with_ttl(Duration::from_secs(30)).with_unsettled_released(released);
        let policy = Policy::per_minute(format!("{released:?}"), 10_000).unwrap().with_algorithm(algorithm);
        let policy = policy.with_holds(holds);
        hold_many(&store, &policy, 1_000, 10).await;
        assert_eq!(available(&store, "a", &policy).await, 0);
        clock.advance(Duration::from_secs(30));
        let left = if released { 10_000 } else { 0 };
        assert_eq!(available(&store, "a", &policy).await, left, "{released:?}, {algorithm:?}");
        // The charges of the holds leave, in the counter two windows after the holds have ended.
        clock.advance(2 * policy.window().unwrap());
        assert!(check(&store, &Check::new("a", &policy, 10_000)).await.allowed, "{released:?}, {algorithm:?}");
    }
}

/// A check ends at most 1 024 holds that are charged. The others count until they are ended.
#[tokio::test]
async fn law_6_a_check_ends_a_bounded_number_of_holds() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    let policy = Policy::per_minute("many", 10_000).unwrap();
    let policy = policy.with_holds(HoldSettings::new().with_ttl(Duration::from_secs(30)));
    hold_many(&store, &policy, 1_100, 1).await;
    clock.advance(Duration::from_secs(91));
    assert_eq!(available(&store, "a", &policy).await, 9_924);
    assert_eq!(available(&store, "a", &policy).await, 10_000);
}

async fn hold_many(store: &impl Store, policy: &Policy, holds: u64, cost: u64) {
    let checks: Vec<Check> = (0..holds).map(|_| Check::hold("a", policy, cost)).collect();
    for verdict in futures_of(checks.iter().map(|check| answer(store.check(check)))).await {
        assert!(verdict.unwrap().allowed);
    }
}

#[tokio::test]
async fn a_huge_settlement_leaves_other_checks_of_its_call_alone() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    for algorithm in ALGORITHMS {
        let policy = Policy::new("huge", 1_000, Policy::MAX_WINDOW).unwrap().with_algorithm(algorithm);
        let policy = policy.with_holds(HoldSettings::new());
        for _ in 0..4 {
            let mut open = Vec::new();
            for key in 0..30 {
                open.extend(hold(&store, &format!("{key}"), &policy, 1).await);
            }
            let settled = open.iter().map(|hold| {
                let actual = if hold.key == "7".into() { u64::MAX } else { 1 };
                answer(store.change_hold(hold, HoldChange::Settle(actual)))
            });
            for settlement in futures_of(settled).await {
                assert_eq!(settlement.unwrap(), SettleAnswer::Settled, "{algorithm:?}");
            }
            let checks: Vec<_> = (0..30).map(|key| Check::new(format!("{key}"), &policy, 1)).collect();
            for (key, verdict) in
                futures_of(checks.iter().map(|check| answer(store.check(check)))).await.iter().enumerate()
            {
                assert_eq!(verdict.as_ref().unwrap().allowed, key != 7, "{algorithm:?} {key}");
            }
        }
    }
}

/// Waits for all futures at the same time, so that they share calls.
async fn futures_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
