//! Checks beside holds that share a call: one look at the holds of all, and each judged as if it were alone.

use std::{collections::BTreeMap, time::Duration};

use tokio::task::JoinSet;
use tollgate::{
    Algorithm, Calendar, Check, Error, Limiter, ManualClock, Policy, limiter::HoldAnswer, policy::HoldSettings,
    store::HoldChange,
};

use super::{builder, change, check, costs::commands, hold};
use crate::support::redis_server::RedisServer;

const KEYS: u64 = 150;

/// A server whose keys have all that may stand beside a count.
async fn prepared(policy: &Policy, clock: &ManualClock) -> (RedisServer, Limiter) {
    let server = RedisServer::start();
    let store = builder().clock(clock.clone()).open(&server.url()).unwrap();
    let limiter = Limiter::new(store.clone()).without_notices();
    let brief = policy.clone().with_holds(HoldSettings::new().with_ttl(Duration::from_millis(1)));
    for number in 0..KEYS {
        let key = number.to_string();
        match number % 10 {
            1 => drop(hold(&store, &key, policy, 7).await.unwrap()),
            2 => drop(hold(&store, &key, &brief, 6).await.unwrap()),
            3 => {
                let held = hold(&store, &key, policy, 5).await.unwrap();
                change(&store, &held, HoldChange::Settle(4)).await;
            }
            4 => drop(check(&store, &Check::new(&*key, policy, 10)).await),
            5 => {
                check(&store, &Check::new(&*key, policy, 1)).await;
                let names = server.command(&format!("KEYS *{{{key}}}*"));
                let name = names.lines().find(|line| line.contains(&format!("{{{key}}}"))).unwrap().trim();
                server.command(&format!("DEL {name}"));
                server.command(&format!("SADD {name} x"));
            }
            6 => limiter.ban(&*key, policy, Duration::from_secs(9)).await.unwrap(),
            7 => limiter.ban(&*key, policy, Duration::from_millis(1)).await.unwrap(),
            _ => {}
        }
    }
    (server, limiter)
}

/// What a caller sees of a check.
fn seen(result: Result<tollgate::Decision, Error>) -> String {
    match result {
        Err(error) => format!("{:?}", error.kind()),
        Ok(decision) => {
            let standing = &decision.policies()[0];
            let times = (decision.retry_after(), standing.next, standing.reset);
            format!("{} {} {times:?} {:?}", decision.is_allowed(), standing.available, standing.ban)
        }
    }
}

/// All algorithms, and the windows of a calendar, which share a function with those of a clock.
fn policies() -> Vec<Policy> {
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    let mut policies =
        algorithms.map(|algorithm| Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm)).to_vec();
    policies.push(Policy::calendar("p", 10, Calendar::daily()).unwrap());
    policies
}

/// One of the calls that share a call of the store.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    BesideHolds,
    Plain,
    Hold,
}

/// Makes a call, and returns what the caller sees of it.
async fn make(limiter: &Limiter, policy: &Policy, kind: Kind, key: u64) -> String {
    let cost = 1 + key % 3;
    let with_holds = policy.clone().with_holds(HoldSettings::new());
    match kind {
        Kind::BesideHolds => seen(limiter.check(key.to_string(), &with_holds, cost).await),
        // Of a count of its own.
        Kind::Plain => seen(limiter.check(format!("plain {key}"), policy, cost).await),
        Kind::Hold => match limiter.hold(format!("held {key}"), &with_holds, cost).await {
            Ok(HoldAnswer::Open(hold)) => {
                let decision = hold.decision().clone();
                // It stays open.
                std::mem::forget(hold);
                seen(Ok(decision))
            }
            Ok(HoldAnswer::Denied(decision)) => seen(Ok(decision)),
            Err(error) => seen(Err(error)),
        },
    }
}

#[tokio::test]
async fn checks_beside_holds_that_share_a_call_are_judged_as_if_each_were_alone() {
    for policy in policies() {
        let with_holds = policy.clone().with_holds(HoldSettings::new());
        let clock = ManualClock::default();
        let (_alone, one_by_one) = prepared(&with_holds, &clock).await;
        let (server, together) = prepared(&with_holds, &clock).await;
        clock.advance(Duration::from_millis(5));
        commands(&server);
        let kinds = [Kind::BesideHolds, Kind::Plain, Kind::Hold, Kind::BesideHolds];
        let mut calls = JoinSet::new();
        for (kind, key) in kinds.iter().flat_map(|kind| (0..KEYS).map(move |key| (*kind, key))) {
            let (limiter, policy) = (together.clone(), policy.clone());
            calls.spawn(async move { ((kind, key), make(&limiter, &policy, kind, key).await) });
        }
        let results = calls.join_all().await;
        assert!(commands(&server)["evalsha"] < 60, "they share calls");
        // Either of the two checks of a key may come first.
        let mut in_calls = BTreeMap::<(Kind, u64), Vec<String>>::new();
        for (call, seen) in results {
            in_calls.entry(call).or_default().push(seen);
        }
        for ((kind, key), mut in_calls) in in_calls {
            let mut alone = Vec::new();
            for _ in 0..in_calls.len() {
                alone.push(make(&one_by_one, &policy, kind, key).await);
            }
            in_calls.sort();
            alone.sort();
            assert_eq!(in_calls, alone, "{policy:?} {kind:?} {key}");
        }
    }
}

#[tokio::test]
async fn one_command_looks_at_the_holds_of_the_checks_of_a_call() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = Limiter::new(builder().clock(clock.clone()).open(&server.url()).unwrap()).without_notices();
    let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new());
    let _ = limiter.check("warm", &policy, 1).await.unwrap();
    commands(&server);
    let mut checks = JoinSet::new();
    for number in 0..64_u64 {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        checks.spawn(async move { limiter.check(number, &policy, 1).await.unwrap().is_allowed() });
    }
    assert!(checks.join_all().await.into_iter().all(|is_allowed| is_allowed));
    let commands = commands(&server);
    let looks: u64 = ["exists", "zcard"].iter().filter_map(|command| commands.get(*command)).sum();
    assert!(looks <= commands["evalsha"], "{commands:?}");
}

/// As on a server whose user was set up before checks looked at holds together.
#[tokio::test]
async fn without_the_permission_for_exists_checks_beside_holds_are_judged_all_the_same() {
    let server = RedisServer::start();
    let url = server.url().replace("//", "//gate:secret@");
    server.command("ACL SETUSER gate on >secret ~tollgate:* -@all +@all -exists");
    let limiter = Limiter::new(builder().open(&url).unwrap()).without_notices();
    let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new());
    let _ = limiter.check("warm", &policy, 1).await.unwrap();
    let mut checks = JoinSet::new();
    for number in 0..64_u64 {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        checks.spawn(async move { limiter.check(number % 8, &policy, 1).await.unwrap().available().unwrap() });
    }
    let mut left = checks.join_all().await;
    left.sort();
    // Eight checks of each of eight keys.
    assert_eq!(left, (2..10).flat_map(|left| [left; 8]).collect::<Vec<_>>());
    assert!(server.command("ACL LOG").contains("exists"), "the user has no permission for EXISTS");
}
