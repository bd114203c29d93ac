//! `WhenFull::EvictLeastSpent`: new keys take the places of the counts with the least spent.

use std::time::Duration;

use tollgate::{Check, Limiter, ManualClock, MemoryStore, Policy, store::WhenFull};

use super::{flood, store};
use crate::support::ALGORITHMS;

#[tokio::test]
async fn law_14_a_client_that_has_spent_its_limit_stays_denied_through_a_flood_of_made_up_keys() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_day("p", 10).unwrap();
    let _ = limiter.check("client", &policy, 10).await.unwrap();
    flood(&limiter, &policy, "flood", 200_000).await;
    assert!(!limiter.check("client", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_14_a_spent_limit_of_a_short_window_survives_a_flood_under_a_long_one() {
    for algorithm in ALGORITHMS {
        let (limiter, store, _clock) = store(1_000, WhenFull::EvictLeastSpent);
        let short = Policy::per_second("short", 5).unwrap().with_algorithm(algorithm);
        let _ = limiter.check("client", &short, 5).await.unwrap();
        flood(&limiter, &Policy::per_day("long", 10).unwrap(), "flood", 20_000).await;
        assert!(!limiter.check("client", &short, 1).await.unwrap().is_allowed(), "{algorithm:?}");
        assert_eq!(store.evicted(), 19_001);
    }
}

/// What counts is the share of the limit that a client has spent, however large the limit is.
#[tokio::test]
async fn law_14_a_spent_limit_of_a_trillion_survives_a_flood_under_a_small_limit() {
    let (limiter, _store, _clock) = store(1_000, WhenFull::EvictLeastSpent);
    let large = Policy::per_day("large", Policy::MAX_LIMIT).unwrap();
    let _ = limiter.check("client", &large, Policy::MAX_LIMIT).await.unwrap();
    flood(&limiter, &Policy::per_day("small", 10).unwrap(), "flood", 20_000).await;
    assert!(!limiter.check("client", &large, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_14_a_new_client_is_limited_although_all_others_have_spent_more() {
    let (limiter, _store, _clock) = store(4, WhenFull::EvictLeastSpent);
    let policy = Policy::per_day("p", 10).unwrap();
    for key in 0..4_u64 {
        let _ = limiter.check(key, &policy, 10).await.unwrap();
    }
    for remaining in (0..10).rev() {
        assert_eq!(limiter.check("new", &policy, 1).await.unwrap().available(), Some(remaining));
    }
    assert!(!limiter.check("new", &policy, 1).await.unwrap().is_allowed());
}

/// Counts of consecutive clients lie side by side, so all candidates for eviction may have spent their limits.
#[tokio::test]
async fn law_14_clients_that_spent_their_limits_one_after_the_other_stay_denied_through_a_flood_of_made_up_keys() {
    const SPENT: u64 = 7_000;
    let clock = ManualClock::default();
    let store = MemoryStore::with_capacity(10_000).unwrap().with_clock(clock.clone());
    let limiter = Limiter::new(store.clone());
    let policy = Policy::per_minute("p", 60).unwrap();
    // Half of the limit is a large share too.
    let cost = |key: u64| if key.is_multiple_of(4) { 30 } else { 60 };
    for key in 0..SPENT {
        let _ = limiter.check(key, &policy, cost(key)).await.unwrap();
    }
    flood(&limiter, &policy, "flood", 60_000).await;
    let mut lifted = 0;
    for key in 0..SPENT {
        lifted += u32::from(limiter.peek(key, &policy).await.unwrap().available() > Some(60 - cost(key)));
    }
    assert!(lifted <= 3, "{lifted} of {SPENT} clients lost their counts");
    assert!(store.evicted() > 40_000);
}

#[tokio::test]
async fn of_counts_that_have_spent_the_same_share_the_oldest_are_dropped_wherever_they_are() {
    let (limiter, store, clock) = store(1_000, WhenFull::EvictLeastSpent);
    let policy = Policy::per_day("p", 10).unwrap();
    for key in 0..4_000_u64 {
        clock.advance(Duration::from_micros(1));
        let _ = limiter.check(key, &policy, 1).await.unwrap();
    }
    let mut kept = 0;
    for key in 0..1_000_u64 {
        kept += u32::from(limiter.peek(key, &policy).await.unwrap().available() == Some(9));
    }
    assert!(kept <= 3, "{kept} of the first 1000 counts are kept");
    assert_eq!(store.evicted(), 3_000);
}

#[tokio::test]
async fn law_14_both_counts_of_a_new_client_are_kept_although_all_others_have_spent_more() {
    let (limiter, _store, _clock) = store(2, WhenFull::EvictLeastSpent);
    let [policy, daily] = ["p", "daily"].map(|name| Policy::per_day(name, 10).unwrap());
    for key in 0..2_u64 {
        let _ = limiter.check(key, &policy, 10).await.unwrap();
    }
    let both = || Check::new("new", &policy, 1).and("new", &daily, 1);
    for _ in 0..10 {
        assert!(limiter.check_all(both()).await.unwrap().is_allowed());
    }
    assert!(!limiter.check_all(both()).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_11_when_full_is_one_setting_of_all_clones() {
    let clock = ManualClock::default();
    let first = MemoryStore::with_capacity(2).unwrap().with_clock(clock.clone());
    let second = first.clone().when_full(WhenFull::Deny);
    let policy = Policy::per_day("p", 10).unwrap();
    let [evicting, denying] = [first, second.clone()].map(Limiter::new);
    flood(&denying, &policy, "kept", 2).await;
    assert_eq!(flood(&evicting, &policy, "new", 10).await, 0);
    assert_eq!(second.evicted(), 0);
    let third = second.when_full(WhenFull::EvictLeastSpent);
    assert_eq!(flood(&denying, &policy, "new", 10).await, 10);
    assert_eq!(third.evicted(), 10);
}

/// Measures the figures in the documentation of `MemoryStore`:
/// `cargo test --all-features --test tests bytes_per_key -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "measures the memory of this process, so no other test may run"]
async fn bytes_per_key() {
    const STORES: u32 = 3;
    const CAPACITY: u32 = 100_000;
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        4_096 * statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    };
    let address = |key: u32| std::net::IpAddr::from((0x0a00_0000 + key).to_be_bytes());
    let mut stores = Vec::new();
    for (algorithm, requests) in
        ALGORITHMS.map(|algorithm| (algorithm, 1)).into_iter().chain([(ALGORITHMS[2], 5), (ALGORITHMS[2], 60)])
    {
        let (before, keys) = (resident(), STORES * CAPACITY);
        let policy = Policy::per_day("per-client", 100).unwrap().with_algorithm(algorithm);
        let clock = ManualClock::default();
        for _ in 0..STORES {
            let store = MemoryStore::new().with_clock(clock.clone());
            let limiter = Limiter::new(store.clone());
            for _ in 0..requests {
                for key in 0..keys / STORES {
                    let _ = limiter.check(address(key), &policy, 1).await.unwrap();
                }
                clock.advance(Duration::from_micros(1));
            }
            assert_eq!(store.keys(), CAPACITY as usize);
            stores.push(store);
        }
        println!("{algorithm:?}, {requests} requests a key: {} bytes", (resident() - before) / keys as usize);
    }
}
