//! Properties that only the memory store has: capacity, idle keys, extreme clocks.

use std::time::Duration;

use tollgate::{Algorithm, Check, Limiter, ManualClock, MemoryStore, Policy, RedisStore};

use crate::support::{ALGORITHMS, says};

#[tokio::test]
async fn law_6_the_memory_store_is_bounded_and_drops_idle_keys_first() {
    let clock = ManualClock::default();
    let store = MemoryStore::with_capacity(1_000).unwrap().with_clock(clock.clone());
    let limiter = Limiter::new(store.clone());
    let policy = Policy::per_minute("p", 10).unwrap();
    for n in 0..10_000_u64 {
        let _ = limiter.check(n, &policy, 1).await.unwrap();
    }
    assert!(store.keys() <= 1_000, "{}", store.keys());
    // All keys become idle. New keys take their places, and no live count is lost.
    clock.advance(Duration::from_secs(60));
    for n in 0..300_u64 {
        let _ = limiter.check(format!("late {n}"), &policy, 1).await.unwrap();
    }
    for n in 0..300_u64 {
        assert_eq!(limiter.peek(format!("late {n}"), &policy).await.unwrap().available(), Some(9), "{n}");
    }
    // Idle keys are dropped although there is room.
    assert!(store.keys() < 900, "{}", store.keys());
    says(MemoryStore::with_capacity(0).unwrap_err(), "a memory store with room for 0 keys can count nothing; ");
}

#[tokio::test]
async fn a_store_whose_keys_soon_become_idle_stays_small() {
    for (algorithm, returns) in ALGORITHMS.into_iter().flat_map(|algorithm| [(algorithm, false), (algorithm, true)]) {
        let clock = ManualClock::default();
        let store = MemoryStore::with_capacity(10_000).unwrap().with_clock(clock.clone());
        let limiter = Limiter::new(store.clone());
        // Idle after 10 ms, or 20 ms at most. A check each 100 us makes 100 to 200 keys live.
        let policy = Policy::new("p", 10, Duration::from_millis(10)).unwrap().with_algorithm(algorithm);
        for n in 0..20_000_u64 {
            clock.advance(Duration::from_micros(100));
            let key = if returns { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52 } else { n };
            let _ = limiter.check(key, &policy, 10).await.unwrap();
            // Nine shards, each with some idle keys and at least a few places.
            assert!(store.keys() <= 600, "{algorithm:?}, {n}: {}", store.keys());
        }
    }
}

#[tokio::test]
async fn token_buckets_in_steady_use_are_kept_between_two_charges() {
    let clock = ManualClock::default();
    let store = MemoryStore::with_capacity(1_000).unwrap().with_clock(clock.clone());
    let limiter = Limiter::new(store.clone());
    let policy = Policy::per_second("p", 1_000).unwrap().with_algorithm(Algorithm::TokenBucket);
    for n in 0..1_000_u64 {
        let _ = limiter.check(n % 100, &policy, 1).await.unwrap();
        assert_eq!(store.keys() as u64, (n + 1).min(100));
        // Every bucket is full again after 1 ms, and charged again after 500 ms.
        clock.advance(Duration::from_millis(5));
    }
    clock.advance(Duration::from_secs(1));
    for key in 100..300_u64 {
        let _ = limiter.check(key, &policy, 1).await.unwrap();
    }
    assert_eq!(store.keys(), 200, "the first hundred buckets have not been used for the time that fills a bucket");
}

#[tokio::test]
async fn no_live_count_is_lost_before_the_capacity_is_reached() {
    for keys in [1, 64, 1_000, 1_023, 2_048, 10_000, 100_000] {
        let limiter = Limiter::new(MemoryStore::with_capacity(keys).unwrap());
        let policy = Policy::per_day("p", 1).unwrap();
        for allowed in [true, false] {
            for key in 0..keys as u64 {
                assert_eq!(limiter.check(key, &policy, 1).await.unwrap().is_allowed(), allowed, "{key} of {keys}");
            }
        }
    }
}

#[tokio::test]
async fn a_reset_of_a_count_that_has_left_its_window_finds_nothing() {
    let clock = ManualClock::default();
    let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
    let policy = Policy::per_minute("p", 10).unwrap();
    for (passed, found) in [(59, true), (60, false)] {
        let _ = limiter.check("k", &policy, 1).await.unwrap();
        clock.advance(Duration::from_secs(passed));
        assert_eq!(limiter.reset("k", &policy).await.unwrap(), found);
    }
}

#[tokio::test]
async fn clocks_at_both_ends_of_their_range_work() {
    for now_us in [0, 1, u64::MAX] {
        let clock = ManualClock::default();
        clock.set_us(now_us);
        let limiter = Limiter::new(MemoryStore::new().with_clock(clock));
        for algorithm in ALGORITHMS {
            for window in [Duration::from_micros(1), Policy::MAX_WINDOW] {
                let policy = Policy::new("p", 2, window).unwrap().with_algorithm(algorithm);
                for available in [Some(1), Some(0), Some(0)] {
                    let decision = limiter.check("k", &policy, 1).await.unwrap();
                    assert_eq!(decision.available(), available, "{algorithm:?} at {now_us}");
                }
            }
        }
    }
}

#[tokio::test]
async fn law_6_peeks_and_denials_leave_no_key_behind() {
    let store = MemoryStore::new();
    let limiter = Limiter::new(store.clone());
    for algorithm in ALGORITHMS {
        let policy = Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm);
        let _ = limiter.peek("k", &policy).await.unwrap();
        let _ = limiter.check("k", &policy, 11).await.unwrap();
    }
    assert_eq!(store.keys(), 0);
}

#[test]
fn stores_can_be_created_outside_a_runtime() {
    let _ = (MemoryStore::new(), RedisStore::open("redis://127.0.0.1:1").unwrap());
}

#[test]
fn a_check_has_at_most_64_charges_and_no_two_policies_of_one_name_for_a_key() {
    let policy = |name: String| Policy::per_minute(name, 10).unwrap();
    let first = Check::new("k", &policy("p0".into()), 1);
    let many = |count: u64| (1..count).fold(first.clone(), |check, n| check.and("k", &policy(format!("p{n}")), 1));
    let limiter = Limiter::new(MemoryStore::new());
    assert!(limiter.try_check_all(many(64)).is_ok_and(|decision| decision.policies().len() == 64));
    says(limiter.try_check_all(many(65)).unwrap_err(), "a check may have at most 64 charges; ");
    let namesake = Policy::per_hour("p0", 10).unwrap();
    says(
        limiter.try_check_all(first.and("k", &namesake, 1)).unwrap_err(),
        r#"two policies of one check are called "p0" "#,
    );
}

#[tokio::test]
async fn law_11_clones_of_a_limiter_spend_from_one_budget() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_minute("p", 10).unwrap();
    let clones: Vec<_> = (0..5).map(|_| limiter.clone()).collect();
    let mut admitted = 0;
    for limiter in clones.iter().cycle().take(50) {
        admitted += u64::from(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    assert_eq!(admitted, 10);
}
