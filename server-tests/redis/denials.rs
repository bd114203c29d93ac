//! Denials that need not be asked for again.

use std::time::{Duration, Instant};

use tollgate::{Check, ErrorKind, Limiter, ManualClock, Policy, RedisStore, decision::Source, redis};

use super::calls;
use crate::support::{proxy::Proxy, redis_server::RedisServer};

const MINUTE: Duration = Duration::from_secs(60);

fn with_clock(server: &RedisServer, clock: &ManualClock, deny_cache: bool) -> Limiter {
    let builder = RedisStore::builder().clock(clock.clone()).deny_cache(deny_cache).deadline(Duration::from_secs(10));
    Limiter::new(builder.connect(&server.url()).unwrap())
}

#[tokio::test]
async fn a_flood_of_denied_checks_costs_redis_nothing() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    limiter.check("k", &policy, 1).await.unwrap();
    limiter.check("k", &policy, 1).await.unwrap();
    let before = calls(&server, "evalsha");
    for step in 0..50 {
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (false, Source::DenyCache));
        assert_eq!(decision.retry_after(), Some(MINUTE - Duration::from_millis(190 * step)));
        clock.advance(Duration::from_millis(190));
    }
    assert_eq!(calls(&server, "evalsha"), before);
    // After ten seconds Redis is asked again: it may have lost its data.
    clock.advance(Duration::from_millis(500));
    assert_eq!(limiter.check("k", &policy, 1).await.unwrap().source(), Source::Store);
    assert_eq!(limiter.check("k", &policy, 1).await.unwrap().source(), Source::DenyCache);
    clock.advance(MINUTE);
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_reset_is_seen_at_once_here_and_after_ten_seconds_elsewhere() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (here, elsewhere) = (with_clock(&server, &clock, true), with_clock(&server, &clock, true));
    let plain = with_clock(&server, &clock, false);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    here.check("k", &policy, 1).await.unwrap();
    for limiter in [&here, &elsewhere, &plain] {
        assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    here.reset("k", &policy).await.unwrap();
    assert!(!elsewhere.check("k", &policy, 1).await.unwrap().is_allowed());
    assert!(plain.peek("k", &policy).await.unwrap().available() == Some(1));
    assert!(here.clone().check("k", &policy, 1).await.unwrap().is_allowed());
    here.reset("k", &policy).await.unwrap();
    clock.advance(Duration::from_secs(10));
    assert!(elsewhere.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_4_a_peek_that_shows_room_ends_the_denials_that_are_remembered() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (here, elsewhere) = (with_clock(&server, &clock, true), with_clock(&server, &clock, true));
    let policies = burst_and_daily();
    assert!(here.check_all(under(&policies, ["k", "k"], 5)).await.unwrap().is_allowed());
    for source in [Source::Store, Source::DenyCache] {
        assert_eq!(here.check_all(under(&policies, ["k", "k"], 1)).await.unwrap().source(), source);
    }
    assert_eq!(here.peek("k", &policies[0]).await.unwrap().available(), Some(0));
    assert_eq!(here.check_all(under(&policies, ["k", "k"], 1)).await.unwrap().source(), Source::DenyCache);
    elsewhere.reset("k", &policies[0]).await.unwrap();
    assert_eq!(here.peek("k", &policies[0]).await.unwrap().available(), Some(5));
    assert!(here.check_all(under(&policies, ["k", "k"], 1)).await.unwrap().is_allowed(), "a peek and a check agree");
}

#[tokio::test]
async fn what_can_change_otherwise_than_by_time_is_asked_for() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let counting = Policy::new("counting", 1, MINUTE).unwrap().with_count_rejected(true);
    let roomy = Policy::new("roomy", 10, MINUTE).unwrap();
    limiter.check("k", &counting, 1).await.unwrap();
    limiter.check("k", &roomy, 5).await.unwrap();
    for _ in 0..5 {
        // Every refusal has to be counted.
        assert_eq!(limiter.check("k", &counting, 1).await.unwrap().source(), Source::Store);
        // Five are left, and somebody else may spend them.
        assert_eq!(limiter.check("k", &roomy, 6).await.unwrap().source(), Source::Store);
    }
}

/// The pair that services have most often: five units in ten seconds, a thousand a day.
fn burst_and_daily() -> [Policy; 2] {
    [Policy::new("burst", 5, Duration::from_secs(10)).unwrap(), Policy::per_day("daily", 1_000).unwrap()]
}

fn under(policies: &[Policy; 2], keys: [&str; 2], cost: u32) -> Check {
    Check::new(keys[0], &policies[0], cost).and(keys[1], &policies[1], cost).unwrap()
}

#[tokio::test]
async fn a_flood_under_a_spent_burst_and_a_daily_limit_with_room_costs_redis_one_call() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (limiter, policies) = (with_clock(&server, &clock, true), burst_and_daily());
    limiter.check_all(under(&policies, ["k", "k"], 5)).await.unwrap();
    let before = calls(&server, "evalsha");
    for _ in 0..500 {
        let decision = limiter.check_all(under(&policies, ["k", "k"], 1)).await.unwrap();
        assert!(!decision.is_allowed());
        clock.advance(Duration::from_millis(15));
    }
    assert_eq!(calls(&server, "evalsha") - before, 1);
}

#[tokio::test]
async fn law_5_a_remembered_denial_of_several_policies_is_the_one_that_redis_gives() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (limiter, plain) = (with_clock(&server, &clock, true), with_clock(&server, &clock, false));
    let policies = burst_and_daily();
    for wait in [0, 300, 300, 300, 300] {
        clock.advance(Duration::from_millis(wait));
        assert!(limiter.check_all(under(&policies, ["k", "k"], 1)).await.unwrap().is_allowed());
    }
    limiter.check_all(under(&policies, ["k", "k"], 1)).await.unwrap();
    let mut remembered = 0;
    loop {
        clock.advance(Duration::from_millis(50));
        let decision = limiter.check_all(under(&policies, ["k", "k"], 1)).await.unwrap();
        if decision.is_allowed() {
            break;
        }
        remembered += u32::from(decision.source() == Source::DenyCache);
        let asked = plain.check_all(under(&policies, ["k", "k"], 1)).await.unwrap();
        assert_eq!(format!("{decision:?}").replace("DenyCache", "Store"), format!("{asked:?}"));
    }
    assert!(remembered > 150, "{remembered} answers from memory");
}

#[tokio::test]
async fn law_5_a_charge_to_the_key_ends_a_denial_beside_which_the_policy_had_room() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let per = |name, limit, seconds| Policy::new(name, limit, Duration::from_secs(seconds)).unwrap();
    let (long, short) = (per("long", 5, 10), per("short", 3, 2));
    let both = || under(&[long.clone(), short.clone()], ["k", "k"], 1);
    for _ in 0..3 {
        assert!(limiter.check_all(both()).await.unwrap().is_allowed());
    }
    for source in [Source::Store, Source::DenyCache] {
        let denied = limiter.check_all(both()).await.unwrap();
        assert_eq!((denied.source(), denied.retry_after()), (source, Some(Duration::from_secs(2))));
    }
    // A look at the policy with room ends nothing.
    assert!(limiter.peek("k", &long).await.unwrap().is_allowed());
    assert_eq!(limiter.check_all(both()).await.unwrap().source(), Source::DenyCache);
    assert!(limiter.check("k", &long, 2).await.unwrap().is_allowed());
    let denied = limiter.check_all(both()).await.unwrap();
    assert_eq!((denied.source(), denied.retry_after()), (Source::Store, Some(Duration::from_secs(10))));
}

#[tokio::test]
async fn law_5_where_others_share_a_policy_with_room_a_denial_is_remembered_for_a_second_at_most() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (limiter, [burst, tenant]) = (with_clock(&server, &clock, true), burst_and_daily());
    let check = || under(&[burst.clone(), tenant.clone()], ["user", "tenant"], 1);
    limiter.check("user", &burst, 5).await.unwrap();
    let second = Duration::from_secs(1);
    for wait in [Duration::ZERO, second] {
        clock.advance(wait);
        assert_eq!(limiter.check_all(check()).await.unwrap().source(), Source::Store);
        assert_eq!(limiter.check_all(check()).await.unwrap().source(), Source::DenyCache);
    }
    // Another user spends the tenant's limit: a second later Retry-After is the tenant's.
    limiter.check("tenant", &tenant, 1_000).await.unwrap();
    clock.advance(second);
    let told = limiter.check_all(check()).await.unwrap();
    assert_eq!((told.source(), told.violated().count()), (Source::Store, 2));
    assert_eq!(told.retry_after(), Some(Duration::from_secs(86_400) - second));
}

#[tokio::test]
async fn law_5_where_a_violated_policy_has_units_left_a_denial_is_remembered_for_a_second_at_most() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (limiter, policies) = (with_clock(&server, &clock, true), burst_and_daily());
    limiter.check_all(under(&policies, ["k", "k"], 5)).await.unwrap();
    limiter.check("k", &policies[1], 994).await.unwrap();
    for wait in [0, 1] {
        clock.advance(Duration::from_secs(wait));
        for source in [Source::Store, Source::DenyCache] {
            let decision = limiter.check_all(under(&policies, ["k", "k"], 2)).await.unwrap();
            assert_eq!((decision.source(), decision.violated().count()), (source, 2));
        }
    }
}

#[tokio::test]
async fn every_denial_before_a_ban_is_counted_and_none_after_it_is_asked_for() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let instances = [with_clock(&server, &clock, true), with_clock(&server, &clock, true)];
    let policy = Policy::new("p", 1, MINUTE).unwrap().ban_after(10, 2 * MINUTE).unwrap();
    instances[0].check("k", &policy, 1).await.unwrap();
    for denial in 1..=10 {
        let decision = instances[denial % 2].check("k", &policy, 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Store), "denial {denial}");
        assert_eq!(decision.policies()[0].ban.is_some(), denial == 10, "denial {denial}");
    }
    // In all instances, though one of them has to hear of it.
    let [here, elsewhere] = instances;
    assert!(elsewhere.check("k", &policy, 1).await.unwrap().policies()[0].ban.is_some());
    let before = (calls(&server, "evalsha"), calls(&server, "setrange"));
    for step in 0..50 {
        clock.advance(Duration::from_millis(100));
        for limiter in [&here, &elsewhere] {
            let decision = limiter.check("k", &policy, 1).await.unwrap();
            assert_eq!((decision.is_allowed(), decision.source()), (false, Source::DenyCache));
            assert_eq!(decision.retry_after(), Some(2 * MINUTE - Duration::from_millis(100 * (step + 1))));
        }
    }
    assert_eq!((calls(&server, "evalsha"), calls(&server, "setrange")), before);
    // The policy's window has passed, the ban has not; and what Redis is asked for is not counted.
    clock.advance(MINUTE);
    assert_eq!(here.check("k", &policy, 1).await.unwrap().source(), Source::Store);
    assert_eq!(calls(&server, "setrange"), before.1);
    clock.advance(MINUTE);
    assert!(here.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_6_a_ban_has_a_ttl() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap().ban_after(2, MINUTE).unwrap();
    for _ in 0..4 {
        limiter.check("k", &policy, 1).await.unwrap();
    }
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*(ban)*").query(&mut connection).unwrap();
    assert_eq!(keys.len(), 1);
    let ttl: i64 = redis::cmd("PTTL").arg(&keys[0]).query(&mut connection).unwrap();
    assert!((120_000..=200_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn it_holds_on_the_servers_clock_too() {
    let server = RedisServer::start();
    let limiter = Limiter::new(RedisStore::connect(&server.url()).unwrap());
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    limiter.check("k", &policy, 1).await.unwrap();
    limiter.check("k", &policy, 1).await.unwrap();
    let before = calls(&server, "evalsha");
    let start = Instant::now();
    for _ in 0..10_000 {
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        assert!(decision.retry_after().unwrap() > Duration::from_secs(50));
    }
    // Redis is asked once in ten seconds.
    assert!(calls(&server, "evalsha") - before <= start.elapsed().as_secs() / 10);
}

#[tokio::test]
async fn when_redis_is_away_the_failure_policy_rules() {
    let mut server = RedisServer::start();
    let limiter = Limiter::new(RedisStore::connect(&server.url()).unwrap());
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    limiter.check("k", &policy, 1).await.unwrap();
    assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    server.kill();
    assert!(limiter.check("another", &policy, 1).await.is_err());
    assert!(limiter.check("k", &policy, 1).await.is_err());
}

#[tokio::test]
async fn a_server_that_became_a_replica_takes_the_denials_with_it() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::to(old.port());
    // Long enough to dial anew within a check.
    let store = RedisStore::builder().deadline(Duration::from_secs(5)).connect(&proxy.url()).unwrap();
    let (limiter, policy) = (Limiter::new(store), Policy::new("p", 1, MINUTE).unwrap());
    for source in [Source::Store, Source::Store, Source::DenyCache] {
        assert_eq!(limiter.check("k", &policy, 1).await.unwrap().source(), source);
    }
    // A connection that breaks within its first second is taken for a failed dial, and those forget denials anyway.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    proxy.retarget(new.port());
    old.command(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    // A check that is to be charged finds out, on each connection. A denial writes nothing.
    let (mut key, mut answered, mut refused) = (0_u64, 0, 0);
    while answered < 4 {
        key += 1;
        match limiter.check(key, &policy, 1).await {
            Ok(_) => answered += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                (answered, refused) = (0, refused + 1);
            }
        }
    }
    assert!(refused > 0, "the replica has charged them");
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed(), "the new primary knows nothing of the denial");
}

#[tokio::test]
async fn a_reset_forgets_the_denials_of_its_key_alone() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    for key in 0..100_u64 {
        limiter.check(key, &policy, 1).await.unwrap();
        assert!(!limiter.check(key, &policy, 1).await.unwrap().is_allowed());
    }
    let (mut remembered, mut all) = (0, 0);
    for _ in 0..20 {
        limiter.reset("another", &policy).await.unwrap();
        for key in 0..100_u64 {
            let decision = limiter.check(key, &policy, 1).await.unwrap();
            assert!(!decision.is_allowed());
            (remembered, all) = (remembered + u32::from(decision.source() == Source::DenyCache), all + 1);
        }
    }
    // A few keys share the fate of the one that is reset.
    assert!(remembered * 10 >= all * 9, "{remembered} of {all} answered from memory");
}

#[tokio::test]
async fn a_reset_of_one_of_its_keys_forgets_the_denial_of_a_check_of_several() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    let both = || Check::new("one", &policy, 1).and("other", &policy, 1).unwrap();
    for key in ["one", "other"] {
        assert!(limiter.check_all(both()).await.unwrap().is_allowed());
        for source in [Source::Store, Source::DenyCache] {
            assert_eq!(limiter.check_all(both()).await.unwrap().source(), source);
        }
        limiter.reset(key, &policy).await.unwrap();
        let decision = limiter.check_all(both()).await.unwrap();
        let left: Vec<_> = decision.policies().iter().map(|policy| policy.available).collect();
        assert_eq!((decision.source(), left), (Source::Store, if key == "one" { vec![1, 0] } else { vec![0, 1] }));
        for key in ["one", "other"] {
            limiter.reset(key, &policy).await.unwrap();
        }
    }
}
