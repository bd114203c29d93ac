//! Bans, and units that are charged or given back by hand.

use std::time::Duration;

use tollgate::{
    Algorithm, Check, Limiter, ManualClock, Policy, RedisStore, decision::Source, limiter::HoldAnswer,
    policy::HoldSettings, redis,
};

use crate::support::{cluster::Cluster, redis_server::RedisServer};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn instance(server: &RedisServer, clock: &ManualClock) -> Limiter {
    let builder = RedisStore::builder().plain_keys().clock(clock.clone()).deadline(Duration::from_secs(10));
    Limiter::new(builder.open(&server.url()).unwrap())
}

fn policies(limit: u64) -> impl Iterator<Item = Policy> {
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    algorithms.into_iter().map(move |algorithm| Policy::per_minute("p", limit).unwrap().with_algorithm(algorithm))
}

fn value(server: &RedisServer, policy: &Policy) -> Vec<u8> {
    let store = RedisStore::builder().plain_keys().open(&server.url()).unwrap();
    redis::cmd("GET").arg(store.redis_key("k", policy)).query(&mut server.connection()).unwrap()
}

fn ttl_ms(server: &RedisServer, policy: &Policy) -> i64 {
    let store = RedisStore::builder().plain_keys().open(&server.url()).unwrap();
    redis::cmd("PTTL").arg(store.redis_key("k", policy)).query(&mut server.connection()).unwrap()
}

#[tokio::test]
async fn other_instances_see_a_ban_and_its_end_within_a_second() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (local, remote) = (instance(&server, &clock), instance(&server, &clock));
    for policy in policies(10) {
        let key = format!("{:?}", policy.algorithm());
        assert!(remote.check(&*key, &policy, 1).await.unwrap().is_allowed());
        local.ban(&*key, &policy, 10 * MINUTE).await.unwrap();
        for source in [Source::Store, Source::DenyCache] {
            let denied = remote.check(&*key, &policy, 1).await.unwrap();
            assert_eq!((denied.is_allowed(), denied.source()), (false, source), "{key}");
            assert_eq!(denied.policies()[0].ban, Some(10 * MINUTE), "{key}");
        }
        local.unban(&*key, &policy).await.unwrap();
        assert!(local.check(&*key, &policy, 1).await.unwrap().is_allowed(), "{key}: at once in the same process");
        clock.advance(SECOND);
        assert!(remote.check(&*key, &policy, 1).await.unwrap().is_allowed(), "{key}");
    }
}

#[tokio::test]
async fn other_instances_see_units_that_are_given_back_within_a_second() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (local, remote) = (instance(&server, &clock), instance(&server, &clock));
    for policy in policies(10) {
        let key = format!("{:?}", policy.algorithm());
        local.record(&*key, &policy, 10).await.unwrap();
        for source in [Source::Store, Source::DenyCache] {
            assert_eq!(remote.check(&*key, &policy, 2).await.unwrap().source(), source);
        }
        assert_eq!(local.credit(&*key, &policy, 4).await.unwrap(), 4, "{key}");
        clock.advance(SECOND);
        assert!(remote.check(&*key, &policy, 2).await.unwrap().is_allowed(), "{key}");
    }
}

#[tokio::test]
async fn law_6_a_ban_takes_some_bytes_and_its_ttl_covers_the_ban_and_the_count() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = instance(&server, &clock);
    for policy in policies(5_000) {
        for _ in 0..1_000 {
            clock.advance(Duration::from_micros(100));
            let _ = limiter.check("k", &policy, 1).await.unwrap();
        }
        let before = value(&server, &policy);
        limiter.ban("k", &policy, 5 * MINUTE).await.unwrap();
        let banned = value(&server, &policy);
        assert!(banned.len() <= before.len() + 32, "{policy:?}: {} and {} bytes", before.len(), banned.len());
        assert!((300_000..400_000).contains(&ttl_ms(&server, &policy)), "{policy:?}");
        // A short ban leaves the count its time.
        limiter.ban("k", &policy, SECOND).await.unwrap();
        assert!(ttl_ms(&server, &policy) >= 59_000, "{policy:?}");
        // A denial writes nothing.
        let banned = value(&server, &policy);
        assert!(!limiter.check("k", &policy, 7).await.unwrap().is_allowed());
        assert_eq!(value(&server, &policy), banned, "{policy:?}");
        limiter.unban("k", &policy).await.unwrap();
        assert_eq!(value(&server, &policy).len(), before.len(), "{policy:?}");
        // A key without a count has none after the ban.
        limiter.reset("k", &policy).await.unwrap();
        limiter.ban("k", &policy, SECOND).await.unwrap();
        assert!(ttl_ms(&server, &policy) > 0, "{policy:?}");
        limiter.unban("k", &policy).await.unwrap();
        assert_eq!(ttl_ms(&server, &policy), -2, "{policy:?}: no key");
    }
}

#[tokio::test]
async fn a_log_of_many_records_goes_on_after_a_ban() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = instance(&server, &clock);
    let policy = Policy::per_minute("p", 2_000).unwrap();
    for round in 0..3_u64 {
        for _ in 0..400 {
            clock.advance(Duration::from_micros(500));
            assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
        }
        let spent = 400 * (round + 1);
        limiter.ban("k", &policy, SECOND).await.unwrap();
        assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
        clock.advance(SECOND);
        assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(2_000 - spent), "round {round}");
    }
    // The records leave at their times, across the places that the bans have used.
    let mut left = 2_000 - 1_200;
    clock.advance(Duration::from_secs(57) - Duration::from_millis(600));
    for _ in 0..1_200 {
        clock.advance(Duration::from_millis(3));
        let decision = limiter.check("k", &policy, 0).await.unwrap();
        assert!(decision.available().unwrap() >= left);
        left = decision.available().unwrap();
    }
    assert_eq!(left, 2_000);
}

#[tokio::test]
async fn checks_that_share_a_call_with_a_banned_key_are_judged_as_usual() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = instance(&server, &clock);
    for policy in policies(5) {
        limiter.ban(7_u64, &policy, MINUTE).await.unwrap();
        limiter.ban(9_u64, &policy, SECOND).await.unwrap();
        clock.advance(SECOND);
        let other = Policy::per_minute("other", 5).unwrap();
        let checks: Vec<_> = (0..100_u64)
            .map(|number| {
                let check = match number % 2 {
                    0 => Check::new(number / 4, &policy, 1),
                    _ => Check::new(number / 4, &policy, 1).and(number / 4, &other, 1),
                };
                tokio::spawn(limiter.check_all(check))
            })
            .collect();
        for (number, check) in checks.into_iter().enumerate() {
            let decision = check.await.unwrap().unwrap();
            assert_eq!(decision.is_allowed(), number / 4 != 7, "{policy:?} {number}");
        }
        for key in [7_u64, 9] {
            let left = if key == 7 { 5 } else { 3 };
            assert_eq!(limiter.peek(key, &other).await.unwrap().available(), Some(left), "{policy:?} {key}");
        }
        for key in 0..25_u64 {
            limiter.reset(key, &policy).await.unwrap();
            limiter.reset(key, &other).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_settlement_during_a_ban_is_charged_once_and_an_expired_hold_after_it() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = instance(&server, &clock);
    for policy in policies(10) {
        let key = format!("{:?}", policy.algorithm());
        let policy = policy.with_holds(HoldSettings::new().with_ttl(2 * SECOND));
        let HoldAnswer::Open(settled) = limiter.hold(&*key, &policy, 3).await.unwrap() else { panic!("3 of 10 units") };
        std::mem::forget(limiter.hold(&*key, &policy, 2).await.unwrap());
        limiter.ban(&*key, &policy, 3 * SECOND).await.unwrap();
        settled.settle(4).await.unwrap();
        assert_eq!(limiter.peek(&*key, &policy).await.unwrap().policies()[0].ban, Some(3 * SECOND), "{key}");
        clock.advance(3 * SECOND);
        // A bucket of 10 a minute refills less than a unit in 3 seconds.
        assert_eq!(limiter.peek(&*key, &policy).await.unwrap().available(), Some(4), "{key}");
    }
}

#[tokio::test]
async fn on_a_cluster_a_change_goes_to_the_master_of_its_key() {
    let cluster = Cluster::start();
    let urls: Vec<_> = cluster.nodes.iter().map(RedisServer::url).collect();
    let builder = || RedisStore::builder().deadline(Duration::from_secs(10));
    let limiter = Limiter::new(builder().open_cluster(urls.iter().map(String::as_str)).unwrap());
    let policy = Policy::per_minute("p", 10).unwrap();
    for key in 0..60_u64 {
        limiter.record(key, &policy, 10).await.unwrap();
        assert_eq!(limiter.credit(key, &policy, 3).await.unwrap(), 3);
        limiter.ban(key, &policy, MINUTE).await.unwrap();
        assert!(!limiter.check(key, &policy, 1).await.unwrap().is_allowed());
        assert!(limiter.unban(key, &policy).await.unwrap());
        assert!(limiter.check(key, &policy, 3).await.unwrap().is_allowed());
        // A check across slots: the ban denies all of it.
        limiter.ban(key, &policy, MINUTE).await.unwrap();
        let both = Check::new(key + 1_000, &policy, 1).and(key, &policy, 1);
        assert!(!limiter.check_all(both).await.unwrap().is_allowed());
        assert_eq!(limiter.peek(key + 1_000, &policy).await.unwrap().available(), Some(10));
    }
}
