//! Bans on Redis and on a cluster.

use std::time::Duration;

use tollgate::{Limiter, ManualClock, Policy, redis, store::RedisStoreBuilder};

use super::stepped_clock::SteppedServer;
use crate::support::bans::{
    bans_refuse_requests_that_cost_nothing, five_failed_logins_then_an_hour, many_logins_at_once,
    settlements_that_do_not_fit_are_denials,
};
use crate::support::growing_bans::{
    bans_grow, both_settings_side_by_side, last_bans_are_forgotten, two_policies_ban_at_once,
};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::{RedisServer, calls};
use crate::support::{cluster::Cluster, patient};

fn builder(clock: &ManualClock) -> RedisStoreBuilder {
    patient().plain_keys().clock(clock.clone())
}

#[tokio::test]
async fn on_redis_a_ban_refuses_every_request_of_the_key() {
    let server = RedisServer::start();
    for deny_cache in [true, false] {
        server.command("FLUSHALL");
        let clock = ManualClock::default();
        let limiter = Limiter::new(builder(&clock).deny_cache(deny_cache).open(&server.url()).unwrap());
        bans_refuse_requests_that_cost_nothing(&limiter, &clock).await;
    }
}

#[tokio::test]
async fn on_a_cluster_a_ban_refuses_every_request_of_the_key() {
    let cluster = Cluster::start();
    let clock = ManualClock::default();
    let limiter = Limiter::new(builder(&clock).open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    bans_refuse_requests_that_cost_nothing(&limiter, &clock).await;
}

/// 200 attempts at once, each with a round trip of 5 ms: no more than five are judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_on_a_distant_redis_five_failed_logins_ban_for_an_hour() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::Latency(Duration::from_micros(2_500)));
    let clock = ManualClock::default();
    let limiter = Limiter::new(builder(&clock).open(&proxy.url()).unwrap());
    many_logins_at_once(&limiter, &clock).await;
    clock.advance(Duration::from_secs(7_200));
    five_failed_logins_then_an_hour(&limiter, &clock).await;
}

#[tokio::test]
async fn on_redis_a_settlement_that_does_not_fit_is_a_denial() {
    let server = RedisServer::start();
    for deny_cache in [true, false] {
        let clock = ManualClock::default();
        let prefix = format!("{deny_cache}:");
        let limiter = builder(&clock).prefix(prefix).deny_cache(deny_cache).open(&server.url()).unwrap();
        settlements_that_do_not_fit_are_denials(&Limiter::new(limiter), &clock).await;
    }
}

#[tokio::test]
async fn on_a_cluster_five_failed_logins_ban_for_an_hour() {
    let cluster = Cluster::start();
    let clock = ManualClock::default();
    let limiter = Limiter::new(builder(&clock).open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    five_failed_logins_then_an_hour(&limiter, &clock).await;
    settlements_that_do_not_fit_are_denials(&limiter, &clock).await;
}

#[tokio::test]
async fn law_5_on_redis_each_ban_is_twice_as_long_as_the_last_and_ends_when_it_says() {
    let server = RedisServer::start();
    for deny_cache in [true, false] {
        let clock = ManualClock::default();
        let store =
            builder(&clock).prefix(format!("{deny_cache}:")).deny_cache(deny_cache).open(&server.url()).unwrap();
        let limiter = Limiter::new(store);
        bans_grow(&limiter, &clock).await;
        last_bans_are_forgotten(&limiter, &clock).await;
        both_settings_side_by_side(&limiter, &clock).await;
        two_policies_ban_at_once(&limiter, &clock).await;
    }
}

#[tokio::test]
async fn law_5_on_a_cluster_each_ban_is_twice_as_long_as_the_last() {
    let cluster = Cluster::start();
    let clock = ManualClock::default();
    let limiter = Limiter::new(builder(&clock).open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    bans_grow(&limiter, &clock).await;
    last_bans_are_forgotten(&limiter, &clock).await;
    two_policies_ban_at_once(&limiter, &clock).await;
}

/// The commands of a check without a ban that begins are those of a policy whose bans do not grow, but for one key.
#[tokio::test]
async fn law_6_only_the_denial_that_begins_a_ban_reads_and_writes_the_length_of_the_last_one() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = Limiter::new(builder(&clock).deny_cache(false).open(&server.url()).unwrap());
    let plain = Policy::per_minute("plain", 2).unwrap().ban_after(2, Duration::from_secs(60));
    let growing = Policy::per_minute("growing", 2).unwrap().ban_after(2, Duration::from_secs(60));
    let growing = growing.growing_to(Duration::from_secs(600));
    let counted = ["getrange", "setrange", "pexpire", "unlink"];
    let commands = async |policy: &Policy, checks: usize| {
        let before = counted.map(|name| calls(&server, name));
        for _ in 0..checks {
            drop(limiter.check("k", policy, 1).await.unwrap());
        }
        let mut after = counted.map(|name| calls(&server, name));
        after.iter_mut().zip(before).for_each(|(after, before)| *after -= before);
        after
    };
    assert_eq!(commands(&growing, 2).await, commands(&plain, 2).await, "admitted");
    assert_eq!(commands(&growing, 1).await, commands(&plain, 1).await, "denied");
    let last_ban = "{k}:growing(ban)+:l5:1m";
    let ask = |command: &str| -> i64 {
        redis::cmd(command).arg(format!("tollgate:{last_ban}")).query(&mut server.connection()).unwrap()
    };
    assert_eq!(ask("EXISTS"), 0);
    let [read, written, ..] = commands(&growing, 1).await;
    let [plainly_read, plainly_written, ..] = commands(&plain, 1).await;
    assert!(read <= plainly_read + 2 && written <= plainly_written + 2, "{read} {written}");
    assert_eq!(ask("EXISTS"), 1);
    let ttl = ask("PTTL");
    // With a client's clock, a minute is added.
    assert!((119_000..=181_000).contains(&ttl), "{ttl} ms for a ban of a minute and a minute");
}

/// A value of another form is no length of a ban, and is replaced.
#[tokio::test]
async fn a_foreign_length_of_the_last_ban_is_replaced() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = Limiter::new(builder(&clock).open(&server.url()).unwrap());
    let minute = Duration::from_secs(60);
    let policy = Policy::per_minute("p", 2).unwrap().ban_after(1, minute).growing_to(10 * minute);
    let key = "tollgate:{k}:p(ban)+:l5:1m";
    let quoted = |doubles: [f64; 2]| -> Vec<u8> { doubles.into_iter().flat_map(f64::to_le_bytes).collect() };
    let next = async || {
        for _ in 0..9 {
            let decision = limiter.check("k", &policy, 1).await.unwrap();
            if let Some(ban) = decision.policies()[0].ban {
                clock.advance(ban);
                return ban;
            }
        }
        panic!("no ban")
    };
    let far = 8e15;
    let foreign: [Vec<u8>; 8] = [
        vec![],
        b"short".to_vec(),
        vec![7; 17],
        quoted([f64::NAN, far]),
        quoted([60e6, f64::NAN]),
        quoted([-60e6, far]),
        quoted([0.5, far]),
        quoted([f64::NEG_INFINITY, f64::INFINITY]),
    ];
    for value in foreign {
        let _: () = redis::cmd("SET").arg(key).arg(&value).query(&mut server.connection()).unwrap();
        assert_eq!(next().await, minute, "{value:?}");
        assert_eq!(next().await, 2 * minute, "{value:?}");
    }
    server.command(&format!("DEL {key}"));
    server.command(&format!("RPUSH {key} x"));
    assert_eq!(next().await, minute);
    assert_eq!(next().await, 2 * minute);
    let _: () = redis::cmd("SET").arg(key).arg(quoted([1e300, far])).query(&mut server.connection()).unwrap();
    assert_eq!(next().await, 10 * minute, "never above the longest");
}

/// Of the end of a ban, a step of an hour would make one more hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_that_grows_lasts_at_most_twice_as_long_after_the_clock_was_set_back() {
    let Some(mut stepped) = SteppedServer::start() else { return };
    let builder = patient().plain_keys().breaker(None).deny_cache(false);
    let limiter = Limiter::new(builder.open(&stepped.server.url()).unwrap()).without_notices();
    let second = Duration::from_secs(1);
    let policy = Policy::new("p", 2, second).unwrap().ban_after(1, second).growing_to(2 * second);
    for length in [second, 2 * second, 2 * second] {
        let ban = loop {
            let decision = limiter.check("k", &policy, 1).await.unwrap();
            if let Some(ban) = decision.policies()[0].ban {
                break ban;
            }
        };
        assert_eq!(ban, length);
        stepped.step(-3_600);
        let denied = limiter.check("k", &policy, 1).await.unwrap();
        let wait = denied.retry_after().expect("the ban goes on");
        assert!(wait <= length, "{wait:?}");
        tokio::time::sleep(wait).await;
        let after = limiter.peek("k", &policy).await.unwrap();
        assert_eq!(after.policies()[0].ban, None, "{after:?}");
    }
}
