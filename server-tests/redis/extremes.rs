//! Extreme values: the first window of the epoch, values of the maximum size in Redis, and totals beyond the exact
//! range of doubles.

use std::time::Duration;

use tollgate::{Algorithm, Limiter, ManualClock, Policy, RedisStore, clock::Clock, redis};

use crate::{lua::protocol::SCRIPT, support::redis_server::RedisServer};

fn with_clock(server: &RedisServer, clock: &ManualClock) -> Limiter {
    let store = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).plain_keys();
    Limiter::new(store.connect(&server.url()).unwrap())
}

#[tokio::test]
async fn law_6_keys_expire_also_near_the_start_of_the_epoch() {
    let (server, clock) = (RedisServer::start(), ManualClock::at_us(5_000_000));
    let limiter = with_clock(&server, &clock);
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    for algorithm in algorithms {
        limiter.check("k", &Policy::per_minute("p", 5).unwrap().with_algorithm(algorithm), 1).await.unwrap();
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
    let policy = Policy::per_day("p", u32::MAX).unwrap();
    limiter.check("k", &policy, 1).await.unwrap();
    let mut allowed = 1 + fill(&server, &clock, 80_000);
    let mut errors = 0;
    while errors < 100 {
        clock.advance(Duration::from_micros(1));
        match limiter.check("k", &policy, 1).await {
            Ok(_) => allowed += 1,
            Err(_) => errors += 1,
        }
    }
    assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(u32::MAX - allowed));
}

/// Charges 1 to the only key, a log of a day, in each of the next microseconds, in pipelines, because single checks take long.
fn fill(server: &RedisServer, clock: &ManualClock, records: u32) -> u32 {
    let mut connection = server.connection();
    let mut policy = vec![1, 0];
    policy.extend(u32::MAX.to_le_bytes());
    policy.extend(86_400e6_f64.to_le_bytes());
    policy.extend(1_f64.to_le_bytes());
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let script = redis::Script::new(SCRIPT);
    for _ in 0..records / 1_000 {
        let mut pipeline = redis::pipe();
        for _ in 0..1_000 {
            clock.advance(Duration::from_micros(1));
            let call = pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(1).arg(&keys);
            call.arg(clock.now_us()).arg(&policy).arg(&[1_u8, 0, 0, 1, 0, 0, 0][..]).ignore();
        }
        let () = pipeline.query(&mut connection).unwrap();
    }
    records
}

#[tokio::test]
async fn a_total_beyond_the_exact_range_of_doubles_starts_over() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = with_clock(&server, &clock);
    let policy = Policy::new("p", 100, Duration::from_micros(100)).unwrap();
    let mut connection = server.connection();
    // One unit per microsecond: from the hundredth step on, one of a hundred units is available.
    for step in 0..400 {
        if step == 200 {
            // Simulates years of traffic: raises the total, the settled total, and the total at the oldest live record.
            for at in [41, 54, 70] {
                let key = "tollgate:{k}:p:l4:100";
                let number: Vec<u8> =
                    redis::cmd("GETRANGE").arg(key).arg(at).arg(at + 7).query(&mut connection).unwrap();
                let number = f64::from_le_bytes(number.try_into().unwrap()) + 2_f64.powi(51);
                redis::cmd("SETRANGE").arg(key).arg(at).arg(&number.to_le_bytes()).exec(&mut connection).unwrap();
            }
        }
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        let available = 100 - 1 - step.min(99);
        assert_eq!((decision.is_allowed(), decision.available()), (true, Some(available)), "step {step}");
        clock.advance(Duration::from_micros(1));
    }
    let total: Vec<u8> =
        redis::cmd("GETRANGE").arg("tollgate:{k}:p:l4:100").arg(41).arg(48).query(&mut connection).unwrap();
    assert!(f64::from_le_bytes(total.try_into().unwrap()) < 2_f64.powi(41));
}
