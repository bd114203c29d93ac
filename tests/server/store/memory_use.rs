//! Memory in Redis: every key expires, and denied traffic is bounded.

use std::time::Duration;

use tollgate::{Limiter, ManualClock, Policy, RedisStore, redis};

use crate::support::{ALGORITHMS, redis_server::RedisServer};

#[tokio::test]
async fn law_6_every_redis_key_has_a_ttl_and_a_denial_writes_nothing() {
    let server = RedisServer::start();
    // A long deadline, so that a loaded machine causes no timeouts.
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    let changes = || {
        let info = server.command("INFO persistence");
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:")).unwrap().to_owned();
        line.trim().parse::<u64>().unwrap()
    };
    for algorithm in ALGORITHMS {
        for window in [Duration::from_millis(1), Duration::from_secs(60), Policy::MAX_WINDOW] {
            let policy = Policy::new("p", 5, window).unwrap().with_algorithm(algorithm);
            let key = format!("{algorithm:?} {window:?}");
            for cost in [1, 2] {
                let _ = limiter.check(&key, &policy, cost).await.unwrap();
            }
            let policy = Policy::new("p", 1, Policy::MAX_WINDOW).unwrap().with_algorithm(algorithm);
            let _ = limiter.check("denied", &policy, 1).await.unwrap();
            let before = changes();
            for _ in 0..5 {
                assert!(!limiter.check("denied", &policy, 1).await.unwrap().is_allowed());
            }
            assert_eq!(changes(), before, "{algorithm:?}");
        }
    }
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    assert!(keys.len() >= 12, "{keys:?}");
    for key in keys {
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        assert!(ttl > 0, "{key}: {ttl}");
        assert!(ttl <= 2 * 366 * 86_400_000 + 1_000, "{key}: {ttl}");
    }
}

#[tokio::test]
async fn law_6_denied_traffic_takes_no_more_memory_than_the_highest_limit_on_the_count() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).open(&server.url());
    let (store, mut connection) = (store.unwrap(), server.connection());
    let limiter = Limiter::new(store.clone());
    let policy = |limit| Policy::per_hour("p", limit).unwrap().with_denials_counted(true);
    let _ = limiter.check("k", &policy(100), 1).await.unwrap();
    for _ in 0..2_000 {
        clock.advance(Duration::from_micros(1));
        let _ = limiter.check("k", &policy(10), 1).await.unwrap();
    }
    let bytes: usize = redis::cmd("STRLEN").arg(store.redis_key("k", &policy(100))).query(&mut connection).unwrap();
    // A ring of 128 records.
    assert!((1_000..=198 + 16 * 88).contains(&bytes), "{bytes} bytes");
}
