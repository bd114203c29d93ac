//! Extreme values: the first window of the epoch, values of the maximum size in Redis, totals beyond the exact range of
//! doubles, and the check with the most counts.

use std::time::Duration;

use tollgate::{Algorithm, Check, Limiter, ManualClock, Policy, RedisStore, clock::Clock, policy::HoldSettings, redis};

use crate::lua::call::{self, SCRIPT};
use crate::support::redis_server::RedisServer;

fn with_clock(server: &RedisServer, clock: &ManualClock) -> Limiter {
    let store = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).plain_keys();
    Limiter::new(store.open(&server.url()).unwrap())
}

#[tokio::test]
async fn law_6_keys_expire_also_near_the_start_of_the_epoch() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    clock.set_us(5_000_000);
    let limiter = with_clock(&server, &clock);
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    for algorithm in algorithms {
        let _ = limiter.check("k", &Policy::per_minute("p", 5).unwrap().with_algorithm(algorithm), 1).await.unwrap();
    }
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    assert_eq!(keys.len(), 4);
    for key in keys {
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        assert!(ttl > 0, "{key}: {ttl}");
    }
}

#[tokio::test]
async fn law_3_a_log_that_redis_refuses_to_extend_charges_nothing() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    // The minimum of this setting; the default is 512 MB.
    server.command("CONFIG SET proto-max-bulk-len 1mb");
    let limiter = with_clock(&server, &clock);
    let policy = Policy::per_day("p", Policy::MAX_LIMIT).unwrap();
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    let mut allowed = 1 + fill(&server, &clock, 80_000);
    let mut errors = 0;
    while errors < 100 {
        clock.advance(Duration::from_micros(1));
        match limiter.check("k", &policy, 1).await {
            Ok(_) => allowed += 1,
            Err(_) => errors += 1,
        }
    }
    assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(Policy::MAX_LIMIT - allowed));
}

/// Charges 1 to the only key, a log of a day, in each of the next microseconds. In pipelines, because single checks
/// take long.
fn fill(server: &RedisServer, clock: &ManualClock, records: u64) -> u64 {
    let mut connection = server.connection();
    let policy = call::Policy::log(Policy::MAX_LIMIT, 86_400_000_000);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let script = redis::Script::new(SCRIPT);
    for _ in 0..records / 1_000 {
        let mut pipeline = redis::pipe();
        for _ in 0..1_000 {
            clock.advance(Duration::from_micros(1));
            call::pipe(&mut pipeline, &script, &keys[0], policy, 1, clock.now_us());
            pipeline.ignore();
        }
        let () = pipeline.query(&mut connection).unwrap();
    }
    records
}

#[tokio::test]
async fn a_total_beyond_40_or_48_bits_starts_over() {
    for bits in [40, 48] {
        let (server, clock) = (RedisServer::start(), ManualClock::default());
        let limiter = with_clock(&server, &clock);
        let policy = Policy::new("p", 100, Duration::from_micros(100)).unwrap();
        let mut connection = server.connection();
        // One unit per microsecond: from the hundredth step on, one of a hundred units is available.
        for step in 0..400 {
            if step == 200 {
                raise(&mut connection, "tollgate:{k}:p:l5:100us", (1 << bits) - 250);
            }
            let decision = limiter.check("k", &policy, 1).await.unwrap();
            let available = 100 - 1 - step.min(99);
            assert_eq!(
                (decision.is_allowed(), decision.available()),
                (true, Some(available)),
                "{bits} bits, step {step}"
            );
            clock.advance(Duration::from_micros(1));
        }
    }
}

/// Raises all cumulative costs of a log, as much traffic would: those of the fields and those of the records.
fn raise(connection: &mut redis::Connection, key: &str, by: u64) {
    let value: Vec<u8> = redis::cmd("GET").arg(key).query(connection).unwrap();
    let fields = [62, 74, 96].map(|at| (at, 6)).into_iter();
    let copy = (0..4).map(|record| record * 11 + 6);
    let pending = (0..7).map(|record| 107 + record * 11 + 6);
    let ring = (198..value.len()).step_by(11).map(|record| record + 6);
    for (at, size) in fields.chain(copy.chain(pending).chain(ring).map(|at| (at, 5))) {
        let mut number = [0; 8];
        number[..size].copy_from_slice(&value[at..at + size]);
        let raised = u64::from_le_bytes(number).wrapping_add(by).to_le_bytes();
        redis::cmd("SETRANGE").arg(key).arg(at).arg(&raised[..size]).exec(connection).unwrap();
    }
}

#[tokio::test]
async fn the_largest_check_may_have_holds_and_bans_that_grow_for_each_key() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock);
    let minute = Duration::from_secs(60);
    let policy = Policy::per_minute("p", 3).unwrap().with_holds(HoldSettings::new());
    let policy = policy.ban_after(9, minute).growing_to(10 * minute);
    let others = 1..Check::MAX_CHARGES as u64;
    let check = || others.clone().fold(Check::new(0_u64, &policy, 1), |check, key| check.and(key, &policy, 1));
    let holds = others.clone().fold(Check::hold(0_u64, &policy, 1), |check, key| check.and_hold(key, &policy, 1));
    assert!(limiter.check_all(check()).await.unwrap().is_allowed());
    let hold = limiter.hold_all(holds).await.unwrap().into_result().unwrap();
    assert!(limiter.check_all(check()).await.unwrap().is_allowed());
    assert!(!limiter.check_all(check()).await.unwrap().is_allowed(), "two units are spent, and one is held");
    hold.release().await.unwrap();
    let left = limiter.peek_all(check()).await.unwrap();
    assert!(left.is_allowed() && left.policies().iter().all(|standing| standing.available == 1), "{left:?}");
}
