//! The deny cache.

use std::time::{Duration, Instant};
use std::{future::poll_fn, task::Poll};

use tollgate::{Check, ErrorKind, Limiter, ManualClock, Policy, RedisStore, decision::Source, redis};

use super::calls;
use crate::support::{connect, proxy::Proxy, redis_server::RedisServer};

const MINUTE: Duration = Duration::from_secs(60);

fn with_clock(server: &RedisServer, clock: &ManualClock, deny_cache: bool) -> Limiter {
    let builder = RedisStore::builder().clock(clock.clone()).deny_cache(deny_cache).deadline(Duration::from_secs(10));
    Limiter::new(builder.open(&server.url()).unwrap())
}

#[tokio::test]
async fn a_flood_of_denied_checks_costs_redis_one_call_a_second() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    let before = calls(&server, "evalsha");
    // Twenty checks at the same time, ten times a second: the first of each second asks Redis again.
    for step in 1..=300_u32 {
        clock.advance(Duration::from_millis(100));
        for number in 0..20 {
            let decision = limiter.check("k", &policy, 1).await.unwrap();
            let source = if step % 10 == 0 && number == 0 { Source::Store } else { Source::DenyCache };
            assert_eq!((decision.is_allowed(), decision.source()), (false, source), "{step} {number}");
            assert_eq!(decision.retry_after(), Some(MINUTE - Duration::from_millis(100) * step));
        }
    }
    assert_eq!(calls(&server, "evalsha") - before, 30);
    clock.advance(MINUTE / 2);
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn of_many_concurrent_checks_one_asks_again() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    for _ in 0..20 {
        clock.advance(Duration::from_secs(1));
        // Denials of other keys, which are remembered meanwhile, do not answer the check that asks.
        let check = |key: u64| {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            tokio::spawn(async move { limiter.check(key, &policy, 1).await.unwrap().source() })
        };
        let others: Vec<_> = (0..100).map(check).collect();
        let spawn = |_| {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            tokio::spawn(async move { limiter.check("k", &policy, 1).await.unwrap().source() })
        };
        let checks: Vec<_> = (0..100).map(spawn).collect();
        let mut asked = 0;
        for check in checks {
            asked += u64::from(check.await.unwrap() == Source::Store);
        }
        assert_eq!(asked, 1);
        for check in others {
            check.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_reset_is_visible_at_once_locally_and_within_a_second_on_other_instances() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (local, remote) = (with_clock(&server, &clock, true), with_clock(&server, &clock, true));
    let plain = with_clock(&server, &clock, false);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    let _ = local.check("k", &policy, 1).await.unwrap();
    for limiter in [&local, &remote, &plain] {
        assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    local.reset("k", &policy).await.unwrap();
    assert!(!remote.check("k", &policy, 1).await.unwrap().is_allowed());
    assert!(plain.peek("k", &policy).await.unwrap().available() == Some(1));
    assert!(local.clone().check("k", &policy, 1).await.unwrap().is_allowed());
    local.reset("k", &policy).await.unwrap();
    clock.advance(Duration::from_secs(1));
    assert!(remote.check("k", &policy, 1).await.unwrap().is_allowed());
}

/// Clients that hang up before the verdict must not keep a denial for all others.
#[tokio::test]
async fn a_reset_is_visible_within_a_second_although_every_caller_that_asks_again_hangs_up() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let policy = Policy::new("p", 10, MINUTE).unwrap();
    for batching in [true, false] {
        let builder = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).batching(batching);
        let store = builder.open(&server.url()).unwrap();
        let (remote, resetting) = (Limiter::new(store.clone()), with_clock(&server, &clock, true));
        assert!(remote.check("k", &policy, 10).await.unwrap().is_allowed());
        assert!(!remote.check("k", &policy, 1).await.unwrap().is_allowed());
        resetting.reset("k", &policy).await.unwrap();

        clock.advance(Duration::from_secs(1));
        // The check asks again, and its caller hangs up at once.
        let mut check = Box::pin(remote.check("k", &policy, 1));
        assert!(poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx).is_pending())).await);
        drop(check);
        let start = Instant::now();
        while !remote.check("k", &policy, 1).await.unwrap().is_allowed() {
            assert!(start.elapsed() < Duration::from_secs(10), "the denial outlives the reset");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        resetting.reset("k", &policy).await.unwrap();
    }
}

#[tokio::test]
async fn a_denial_that_is_not_repeated_is_forgotten() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (local, remote) = (with_clock(&server, &clock, true), with_clock(&server, &clock, true));
    let policy = Policy::new("p", 5, MINUTE).unwrap();
    // After the reset, the other instance leaves room for the check that asks again, or a unit that it does not fit.
    for spent in [0, 4] {
        local.reset("k", &policy).await.unwrap();
        let _ = local.check("k", &policy, 5).await.unwrap();
        clock.advance(Duration::from_secs(1));
        for source in [Source::Store, Source::DenyCache] {
            assert_eq!(remote.check("k", &policy, 2).await.unwrap().source(), source);
        }
        local.reset("k", &policy).await.unwrap();
        let _ = local.check("k", &policy, spent).await.unwrap();
        clock.advance(Duration::from_secs(1));
        for _ in 0..3 {
            assert_eq!(remote.check("k", &policy, 2).await.unwrap().source(), Source::Store);
        }
    }
}

#[tokio::test]
async fn a_denial_that_redis_cannot_repeat_still_holds_for_ten_seconds() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let builder = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_millis(100)).breaker(None);
    let limiter = Limiter::new(builder.open(&server.url()).unwrap());
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    limiter.ready().await.unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    server.signal("STOP");
    for _ in 0..2 {
        clock.advance(Duration::from_secs(1));
        assert_eq!(limiter.check("k", &policy, 1).await.unwrap_err().kind(), ErrorKind::Deadline);
        for _ in 0..10 {
            assert_eq!(limiter.check("k", &policy, 1).await.unwrap().source(), Source::DenyCache);
        }
    }
    clock.advance(Duration::from_secs(8));
    for _ in 0..2 {
        assert!(limiter.check("k", &policy, 1).await.is_err());
    }
    server.signal("CONT");
}

#[tokio::test]
async fn law_4_a_peek_that_shows_room_removes_cached_denials() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (local, remote) = (with_clock(&server, &clock, true), with_clock(&server, &clock, true));
    let policies = burst_and_daily();
    assert!(local.check_all(check_of(&policies, ["k", "k"], 5)).await.unwrap().is_allowed());
    for source in [Source::Store, Source::DenyCache] {
        assert_eq!(local.check_all(check_of(&policies, ["k", "k"], 1)).await.unwrap().source(), source);
    }
    assert_eq!(local.peek("k", &policies[0]).await.unwrap().available(), Some(0));
    assert_eq!(local.check_all(check_of(&policies, ["k", "k"], 1)).await.unwrap().source(), Source::DenyCache);
    remote.reset("k", &policies[0]).await.unwrap();
    assert_eq!(local.peek("k", &policies[0]).await.unwrap().available(), Some(5));
    assert!(
        local.check_all(check_of(&policies, ["k", "k"], 1)).await.unwrap().is_allowed(),
        "a peek and a check agree"
    );
}

#[tokio::test]
async fn denials_that_other_requests_can_change_are_not_cached() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let counting = Policy::new("counting", 1, MINUTE).unwrap().with_denials_counted(true);
    let roomy = Policy::new("roomy", 10, MINUTE).unwrap();
    let _ = limiter.check("k", &counting, 1).await.unwrap();
    let _ = limiter.check("k", &roomy, 5).await.unwrap();
    for _ in 0..5 {
        // Redis must count every rejection.
        assert_eq!(limiter.check("k", &counting, 1).await.unwrap().source(), Source::Store);
        // Another client may spend the five units left.
        assert_eq!(limiter.check("k", &roomy, 6).await.unwrap().source(), Source::Store);
    }
}

/// A common pair of policies: five units per ten seconds, a thousand per day.
fn burst_and_daily() -> [Policy; 2] {
    [Policy::new("burst", 5, Duration::from_secs(10)).unwrap(), Policy::per_day("daily", 1_000).unwrap()]
}

fn check_of(policies: &[Policy; 2], keys: [&str; 2], cost: u64) -> Check {
    Check::new(keys[0], &policies[0], cost).and(keys[1], &policies[1], cost)
}

#[tokio::test]
async fn a_flood_under_a_spent_burst_and_a_daily_limit_with_room_costs_redis_one_call_a_second() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (limiter, policies) = (with_clock(&server, &clock, true), burst_and_daily());
    let _ = limiter.check_all(check_of(&policies, ["k", "k"], 5)).await.unwrap();
    let before = calls(&server, "evalsha");
    for _ in 0..500 {
        let decision = limiter.check_all(check_of(&policies, ["k", "k"], 1)).await.unwrap();
        assert!(!decision.is_allowed());
        clock.advance(Duration::from_millis(15));
    }
    // 7.5 seconds.
    assert_eq!(calls(&server, "evalsha") - before, 8);
}

#[tokio::test]
async fn law_5_a_cached_denial_of_several_policies_equals_the_denial_of_redis() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (limiter, plain) = (with_clock(&server, &clock, true), with_clock(&server, &clock, false));
    let policies = burst_and_daily();
    for wait in [0, 300, 300, 300, 300] {
        clock.advance(Duration::from_millis(wait));
        assert!(limiter.check_all(check_of(&policies, ["k", "k"], 1)).await.unwrap().is_allowed());
    }
    let _ = limiter.check_all(check_of(&policies, ["k", "k"], 1)).await.unwrap();
    let mut cached = 0;
    loop {
        clock.advance(Duration::from_millis(50));
        let decision = limiter.check_all(check_of(&policies, ["k", "k"], 1)).await.unwrap();
        if decision.is_allowed() {
            break;
        }
        cached += u64::from(decision.source() == Source::DenyCache);
        let stored = plain.check_all(check_of(&policies, ["k", "k"], 1)).await.unwrap();
        assert_eq!(format!("{decision:?}").replace("DenyCache", "Store"), format!("{stored:?}"));
    }
    assert!(cached > 150, "{cached} denials from the deny cache");
}

#[tokio::test]
async fn law_5_a_charge_to_a_policy_with_room_removes_the_cached_denial() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let per = |name, limit, seconds| Policy::new(name, limit, Duration::from_secs(seconds)).unwrap();
    let (long, short) = (per("long", 5, 10), per("short", 3, 2));
    let both = || check_of(&[long.clone(), short.clone()], ["k", "k"], 1);
    for _ in 0..3 {
        assert!(limiter.check_all(both()).await.unwrap().is_allowed());
    }
    for source in [Source::Store, Source::DenyCache] {
        let denied = limiter.check_all(both()).await.unwrap();
        assert_eq!((denied.source(), denied.retry_after()), (source, Some(Duration::from_secs(2))));
    }
    // A peek at the policy with room removes nothing.
    assert!(limiter.peek("k", &long).await.unwrap().is_allowed());
    assert_eq!(limiter.check_all(both()).await.unwrap().source(), Source::DenyCache);
    assert!(limiter.check("k", &long, 2).await.unwrap().is_allowed());
    let denied = limiter.check_all(both()).await.unwrap();
    assert_eq!((denied.source(), denied.retry_after()), (Source::Store, Some(Duration::from_secs(10))));
}

#[tokio::test]
async fn law_5_the_retry_after_of_a_cached_denial_follows_a_shared_policy_within_a_second() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (limiter, [burst, tenant]) = (with_clock(&server, &clock, true), burst_and_daily());
    let check = || check_of(&[burst.clone(), tenant.clone()], ["user", "tenant"], 1);
    let _ = limiter.check("user", &burst, 5).await.unwrap();
    let second = Duration::from_secs(1);
    for wait in [Duration::ZERO, second] {
        clock.advance(wait);
        assert_eq!(limiter.check_all(check()).await.unwrap().source(), Source::Store);
        assert_eq!(limiter.check_all(check()).await.unwrap().source(), Source::DenyCache);
    }
    // Another user spends the tenant's limit; one second later Retry-After is that of the tenant's policy.
    let _ = limiter.check("tenant", &tenant, 1_000).await.unwrap();
    clock.advance(second);
    let text = limiter.check_all(check()).await.unwrap();
    assert_eq!((text.source(), text.violated().count()), (Source::Store, 2));
    assert_eq!(text.retry_after(), Some(Duration::from_secs(86_400) - second));
}

#[tokio::test]
async fn law_5_a_denial_by_a_policy_with_units_left_is_cached_for_at_most_a_second() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (limiter, policies) = (with_clock(&server, &clock, true), burst_and_daily());
    let _ = limiter.check_all(check_of(&policies, ["k", "k"], 5)).await.unwrap();
    let _ = limiter.check("k", &policies[1], 994).await.unwrap();
    for wait in [0, 1] {
        clock.advance(Duration::from_secs(wait));
        for source in [Source::Store, Source::DenyCache] {
            let decision = limiter.check_all(check_of(&policies, ["k", "k"], 2)).await.unwrap();
            assert_eq!((decision.source(), decision.violated().count()), (source, 2));
        }
    }
}

#[tokio::test]
async fn every_denial_before_a_ban_is_counted_and_denials_after_it_are_cached() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let instances = [with_clock(&server, &clock, true), with_clock(&server, &clock, true)];
    let policy = Policy::new("p", 1, MINUTE).unwrap().ban_after(10, 2 * MINUTE);
    let _ = instances[0].check("k", &policy, 1).await.unwrap();
    for denial in 1..=10 {
        let decision = instances[denial % 2].check("k", &policy, 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Store), "denial {denial}");
        assert_eq!(decision.policies()[0].ban.is_some(), denial == 10, "denial {denial}");
    }
    // The ban applies in all instances; the other instance learns of it with one more check.
    let [local, remote] = instances;
    assert!(remote.check("k", &policy, 1).await.unwrap().policies()[0].ban.is_some());
    let before = (calls(&server, "evalsha"), calls(&server, "setrange"));
    for step in 1..=50 {
        clock.advance(Duration::from_millis(100));
        for limiter in [&local, &remote] {
            let decision = limiter.check("k", &policy, 1).await.unwrap();
            let source = if step % 10 == 0 { Source::Store } else { Source::DenyCache };
            assert_eq!((decision.is_allowed(), decision.source()), (false, source), "{step}");
            assert_eq!(decision.retry_after(), Some(2 * MINUTE - Duration::from_millis(100 * step)));
        }
    }
    // Each instance asks once a second, and Redis writes nothing.
    assert_eq!((calls(&server, "evalsha"), calls(&server, "setrange")), (before.0 + 2 * 5, before.1));
    // The window has ended and the ban has not; the check that asks Redis is not counted.
    clock.advance(MINUTE);
    assert_eq!(local.check("k", &policy, 1).await.unwrap().source(), Source::Store);
    assert_eq!(calls(&server, "setrange"), before.1);
    clock.advance(MINUTE);
    assert!(local.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_6_a_ban_has_a_ttl() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap().ban_after(2, MINUTE);
    for _ in 0..4 {
        let _ = limiter.check("k", &policy, 1).await.unwrap();
    }
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*(ban)*").query(&mut connection).unwrap();
    assert_eq!(keys.len(), 1);
    let ttl: i64 = redis::cmd("PTTL").arg(&keys[0]).query(&mut connection).unwrap();
    assert!((120_000..=200_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn denials_are_cached_on_the_servers_clock_too() {
    let server = RedisServer::start();
    let builder = RedisStore::builder().deadline(Duration::from_secs(10));
    let limiter = Limiter::new(builder.open(&server.url()).unwrap());
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    let before = calls(&server, "evalsha");
    let start = Instant::now();
    for _ in 0..10_000 {
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        assert!(decision.retry_after().unwrap() > Duration::from_secs(50));
    }
    // A cached denial is asked again once a second.
    assert!(calls(&server, "evalsha") - before <= start.elapsed().as_secs());
}

#[tokio::test]
async fn cached_denials_are_not_used_while_redis_is_down() {
    let mut server = RedisServer::start();
    let limiter = Limiter::new(connect(&server.url()));
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    server.kill();
    assert!(limiter.check("another", &policy, 1).await.is_err());
    assert!(limiter.check("k", &policy, 1).await.is_err());
}

#[tokio::test]
async fn a_server_that_became_a_replica_clears_cached_denials() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::to(old.port());
    // The long deadline leaves time to reconnect within a check.
    let store = RedisStore::builder().deadline(Duration::from_secs(5)).open(&proxy.url()).unwrap();
    let (limiter, policy) = (Limiter::new(store), Policy::new("p", 1, MINUTE).unwrap());
    for source in [Source::Store, Source::Store, Source::DenyCache] {
        assert_eq!(limiter.check("k", &policy, 1).await.unwrap().source(), source);
    }
    // A connection lost within its first second counts as a failed dial, which would clear the cache by itself.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    proxy.retarget(new.port());
    old.command(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    // A check that charges gets READONLY on each connection; a denial writes nothing.
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
    assert!(refused > 0, "no check reached the replica");
    assert!(
        limiter.check("k", &policy, 1).await.unwrap().is_allowed(),
        "the cached denial outlived the switch to the new primary"
    );
}

#[tokio::test]
async fn a_reset_removes_cached_denials_of_its_own_key_only() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    for key in 0..100_u64 {
        let _ = limiter.check(key, &policy, 1).await.unwrap();
        assert!(!limiter.check(key, &policy, 1).await.unwrap().is_allowed());
    }
    let (mut cached, mut all) = (0, 0);
    for _ in 0..20 {
        limiter.reset("another", &policy).await.unwrap();
        for key in 0..100_u64 {
            let decision = limiter.check(key, &policy, 1).await.unwrap();
            assert!(!decision.is_allowed());
            (cached, all) = (cached + u64::from(decision.source() == Source::DenyCache), all + 1);
        }
    }
    // A few keys share a segment of the cache with the key of the reset.
    assert!(cached * 10 >= all * 9, "{cached} of {all} from the deny cache");
}

#[tokio::test]
async fn a_reset_of_one_key_removes_the_cached_denial_of_a_check_of_several() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock, true);
    let policy = Policy::new("p", 1, MINUTE).unwrap();
    let both = || Check::new("one", &policy, 1).and("other", &policy, 1);
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
