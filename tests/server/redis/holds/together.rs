//! Checks beside holds that share a call: one look at the holds of all, and each judged as if it were alone.

use std::{collections::BTreeMap, time::Duration};

use tokio::task::JoinSet;
use tollgate::{Algorithm, Check, Error, Limiter, ManualClock, Policy, policy::HoldSettings, store::HoldChange};

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

#[tokio::test]
async fn checks_beside_holds_that_share_a_call_are_judged_as_if_each_were_alone() {
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    for algorithm in algorithms {
        let policy = Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm).with_holds(HoldSettings::new());
        let clock = ManualClock::default();
        let (_alone, one_by_one) = prepared(&policy, &clock).await;
        let (server, together) = prepared(&policy, &clock).await;
        clock.advance(Duration::from_millis(5));
        commands(&server);
        let mut checks = JoinSet::new();
        for key in (0..KEYS).chain(0..KEYS) {
            let (limiter, policy) = (together.clone(), policy.clone());
            checks.spawn(async move { (key, limiter.check(key.to_string(), &policy, 1 + key % 3).await) });
        }
        let results = checks.join_all().await;
        assert!(commands(&server)["evalsha"] < 40, "checks share calls");
        // Either of the two checks of a key may come first.
        let mut in_calls = BTreeMap::<u64, Vec<String>>::new();
        for (key, result) in results {
            in_calls.entry(key).or_default().push(seen(result));
        }
        for (key, mut in_calls) in in_calls {
            let mut alone = Vec::new();
            for _ in 0..2 {
                alone.push(seen(one_by_one.check(key.to_string(), &policy, 1 + key % 3).await));
            }
            in_calls.sort();
            alone.sort();
            assert_eq!(in_calls, alone, "{algorithm:?} {key}");
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
