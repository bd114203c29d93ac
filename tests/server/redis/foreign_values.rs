//! Values in Redis that no limiter has written: each is an error of its own key, and of nothing else.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::redis::{self, Connection};
use tollgate::{
    Algorithm, ErrorKind, Key, Limiter, ManualClock, MemoryStore, Policy, RedisStore, observe::Fingerprint,
};

use crate::support::redis_server::RedisServer;

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];

fn store(server: &RedisServer, clock: &ManualClock) -> RedisStore {
    let store = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).plain_keys();
    store.open(&server.url()).unwrap()
}

/// A value of numbers that are none.
fn set_nan(connection: &mut Connection, key: &str, bytes: usize) {
    let value = f64::NAN.to_le_bytes().repeat(bytes / 8);
    let (): () = redis::cmd("SET").arg(key).arg(value).query(connection).unwrap();
}

#[tokio::test]
async fn law_14_a_foreign_value_lifts_no_limit_of_the_checks_beside_it() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = store(&server, &clock);
    let (limiter, mut connection) = (Limiter::new(store.clone()), server.connection());
    for algorithm in ALGORITHMS {
        let policy = Policy::per_hour("p", 1_000).unwrap().with_algorithm(algorithm);
        let key = store.redis_key("bad", &policy);
        for bytes in [32, 40, 400] {
            set_nan(&mut connection, &key, bytes);
            let mut checks = JoinSet::new();
            for number in 0..1_600 {
                let (limiter, policy) = (limiter.clone(), policy.clone());
                checks.spawn(async move {
                    let key = if number % 4 == 0 { "bad" } else { "good" };
                    (key, limiter.check(key, &policy, 1).await)
                });
            }
            let mut allowed = 0;
            for (key, result) in checks.join_all().await {
                match result {
                    Ok(decision) => {
                        assert_eq!(key, "good");
                        allowed += u64::from(decision.is_allowed());
                    }
                    Err(error) => {
                        assert_eq!((key, error.kind()), ("bad", ErrorKind::BadKey), "{error}");
                        assert!(!error.may_have_charged(), "{error}");
                    }
                }
            }
            assert_eq!(allowed, 1_000, "{algorithm:?}");
            // The store is well: no breaker has opened.
            assert!(!limiter.check("good", &policy, 1).await.unwrap().is_allowed());
            assert!(limiter.reset("good", &policy).await.unwrap());
            assert!(limiter.reset("bad", &policy).await.unwrap());
            assert!(limiter.check("bad", &policy, 1).await.unwrap().is_allowed(), "after its reset");
        }
    }
}

#[tokio::test]
async fn the_error_of_a_foreign_value_names_the_key_by_its_fingerprint() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = store(&server, &clock);
    let (limiter, policy) = (Limiter::new(store.clone()), Policy::per_hour("emails", 10).unwrap());
    let redis_key = store.redis_key("secret-name", &policy);
    let fingerprint = Fingerprint::of(&Key::from("secret-name")).to_string();
    for value in ["SET", "SADD"] {
        server.command(&format!("DEL {redis_key}"));
        server.command(&format!("{value} {redis_key} text"));
        let error = limiter.check("secret-name", &policy, 1).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::BadKey, "{text}");
        assert!(text.contains(&format!("key {fingerprint} under policy \"emails\"")), "{text}");
        assert!(!text.contains("secret-name"), "{text}");
    }
}

#[tokio::test]
async fn law_12_memory_and_redis_agree_beside_foreign_values_and_after_their_reset() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = store(&server, &clock);
    let in_memory = MemoryStore::new().with_clock(clock.clone());
    let (limiter, oracle) = (Limiter::new(store.clone()), Limiter::new(in_memory));
    let mut connection = server.connection();
    let mut state = 1_u64;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut resets = 0;
    for _ in 0..2_000 {
        clock.advance(Duration::from_micros(below(2_000_000)));
        let policy = Policy::per_minute("p", 20).unwrap().with_algorithm(ALGORITHMS[below(4) as usize]);
        let (key, cost) = (below(4), below(4));
        if below(10) == 0 {
            let bytes = [8, 32, 40, 96, 400][below(5) as usize];
            set_nan(&mut connection, &store.redis_key(key, &policy), bytes);
        }
        let expected = oracle.check(key, &policy, cost).await.unwrap();
        match limiter.check(key, &policy, cost).await {
            Ok(decision) => {
                let fields = |decision: &tollgate::Decision| {
                    (decision.is_allowed(), decision.available(), decision.retry_after())
                };
                assert_eq!(fields(&decision), fields(&expected));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::BadKey, "{error}");
                assert!(limiter.reset(key, &policy).await.unwrap());
                oracle.reset(key, &policy).await.unwrap();
                resets += 1;
            }
        }
    }
    assert!(resets > 0);
}

#[tokio::test]
async fn law_14_a_damaged_ban_is_an_error_of_its_key_alone_and_a_reset_heals_it() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = store(&server, &clock);
    let (limiter, mut connection) = (Limiter::new(store.clone()), server.connection());
    let fingerprint = Fingerprint::of(&Key::from("bad")).to_string();
    for algorithm in ALGORITHMS {
        let policy = Policy::per_hour("p", 1_000).unwrap().with_algorithm(algorithm);
        assert!(limiter.check("bad", &policy, 1).await.unwrap().is_allowed());
        limiter.ban("bad", &policy, Duration::from_secs(3_600)).await.unwrap();
        // A second later no instance remembers the ban.
        clock.advance(Duration::from_secs(2));
        let redis_key = store.redis_key("bad", &policy);
        let value: Vec<u8> = redis::cmd("GET").arg(&redis_key).query(&mut connection).unwrap();
        let cut = &value[..value.len() - 8];
        let (): () = redis::cmd("SET").arg(&redis_key).arg(cut).query(&mut connection).unwrap();
        for _ in 0..50 {
            let error = limiter.check("bad", &policy, 1).await.unwrap_err();
            assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::BadKey, false), "{algorithm:?}: {error}");
            assert!(error.to_string().contains(&fingerprint), "{error}");
            assert!(
                limiter.check("good", &policy, 1).await.unwrap().is_allowed(),
                "{algorithm:?}: no breaker has opened"
            );
        }
        assert_eq!(limiter.unban("bad", &policy).await.unwrap_err().kind(), ErrorKind::BadKey);
        assert!(limiter.reset("bad", &policy).await.unwrap());
        assert!(limiter.check("bad", &policy, 1).await.unwrap().is_allowed(), "after its reset");
        assert!(limiter.reset("good", &policy).await.unwrap());
        assert!(limiter.reset("bad", &policy).await.unwrap());
    }
}
