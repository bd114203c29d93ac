//! `WhenFull::Deny`: new keys are denied until a place is free.

use std::time::Duration;

use tollgate::{Algorithm, Check, Policy, store::WhenFull};

use super::{MINUTE, flood, store};
use crate::support::{ALGORITHMS, random::Random, seed::seeds};

#[tokio::test]
async fn law_5_a_new_key_that_is_denied_by_a_full_store_passes_at_retry_after() {
    for algorithm in ALGORITHMS {
        let (limiter, store, clock) = store(4, WhenFull::Deny);
        let policy = Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm);
        for key in 0..4_u64 {
            let _ = limiter.check(key, &policy, 1).await.unwrap();
            clock.advance(Duration::from_millis(100));
        }
        let denied = limiter.check("new", &policy, 1).await.unwrap();
        assert!(!denied.is_allowed() && denied.violated().count() == 1, "{algorithm:?}");
        assert!(!limiter.peek("new", &policy).await.unwrap().is_allowed());
        assert!(limiter.check("new", &policy, 0).await.unwrap().is_allowed());
        assert_eq!(limiter.check("new", &policy, 11).await.unwrap().retry_after(), None, "the cost never fits");
        // A key with a count is checked as usual. Under a token bucket, its count now becomes idle later.
        assert!(limiter.check(0_u64, &policy, 1).await.unwrap().is_allowed());
        let wait = limiter.check("new", &policy, 1).await.unwrap().retry_after().unwrap();
        clock.advance(wait - Duration::from_micros(1));
        assert_eq!(
            limiter.check("new", &policy, 1).await.unwrap().retry_after(),
            Some(Duration::from_micros(1)),
            "{algorithm:?}"
        );
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check("new", &policy, 1).await.unwrap().is_allowed(), "{algorithm:?}");
        assert_eq!(store.evicted(), 0);
    }
}

#[tokio::test]
async fn law_2_a_charge_that_writes_no_count_needs_no_place() {
    let [burst, daily] = ["burst", "daily"].map(|name| Policy::per_minute(name, 10).unwrap());
    let banning = Policy::per_minute("banning", 10).unwrap().ban_after(1, MINUTE);
    for check in [
        Check::new("new", &burst, 0).and("new", &daily, 1),
        Check::new("new", &burst, 1).and("new", &daily, 0),
        Check::new("new", &banning, 1),
        Check::new("new", &banning, 0).and("new", &daily, 1),
    ] {
        let (limiter, store, _clock) = store(1, WhenFull::Deny);
        assert!(limiter.check_all(check.clone()).await.unwrap().is_allowed(), "{check:?}");
        assert_eq!(store.keys(), 1);
    }
    for (first, second) in [(&banning, &daily), (&daily, &banning)] {
        let (limiter, store, _clock) = store(2, WhenFull::Deny);
        let check = Check::new("new", first, 1).and("new", second, 1);
        assert!(limiter.check_all(check).await.unwrap().is_allowed());
        // No place is left for the count of denials.
        assert!(!limiter.check("new", &banning, 10).await.unwrap().is_allowed());
        assert_eq!((store.keys(), store.evicted()), (2, 0));
    }
    let (limiter, store, _clock) = store(2, WhenFull::Deny);
    let _ = limiter.check("new", &banning, 10).await.unwrap();
    // A cost of 0 does not take the place that is left for the count of denials.
    let denied = limiter.check_all(Check::new("new", &burst, 0).and("new", &banning, 1)).await.unwrap();
    assert_eq!((denied.policies()[1].ban, store.keys()), (Some(MINUTE), 2));
}

/// Every new key goes on where the last one has stopped to look for idle counts.
#[tokio::test]
async fn a_few_new_keys_find_the_place_of_an_idle_count_wherever_it_is() {
    let [policy, short] = [Policy::per_day("p", 10), Policy::per_second("p", 10)].map(Result::unwrap);
    for place in [0, 100] {
        let (limiter, store, clock) = store(200, WhenFull::Deny);
        for key in 0..200_u64 {
            let policy = if key == place { &short } else { &policy };
            assert!(limiter.check(key, policy, 1).await.unwrap().is_allowed());
        }
        clock.advance(Duration::from_secs(1));
        assert_eq!(flood(&limiter, &policy, "new", 25).await, 1, "the count of key {place} is idle");
        assert_eq!((store.keys(), store.evicted()), (200, 0));
    }
}

/// New counts stay at the end, so the last of the others takes the place of one that is dropped.
#[tokio::test]
async fn a_count_that_has_moved_is_still_known_as_the_first_that_frees_its_place() {
    let (limiter, store, clock) = store(64, WhenFull::Deny);
    let of = |seconds| {
        let policy = Policy::new("p", 1, Duration::from_secs(seconds)).unwrap();
        policy.with_algorithm(Algorithm::SlidingWindowLog)
    };
    for key in 0..64_u64 {
        let seconds = match key {
            2 => 600,
            61 => 3_600,
            _ => 86_400,
        };
        assert!(limiter.check(key, &of(seconds), 1).await.unwrap().is_allowed());
    }
    let daily = of(86_400);
    // Each looks at sixteen counts.
    for _ in 0..4 {
        assert!(!limiter.check("denied", &daily, 1).await.unwrap().is_allowed());
    }
    clock.advance(Duration::from_secs(600));
    for key in [63_u64, 62] {
        assert!(limiter.reset(key, &daily).await.unwrap());
    }
    let new = Check::new("new-1", &daily, 1).and("new-2", &daily, 1);
    assert!(limiter.check_all(new).await.unwrap().is_allowed());
    assert_eq!(store.keys(), 63, "the place of the idle count is free");
    for key in ["new-1", "new-2"] {
        assert!(!limiter.peek(key, &daily).await.unwrap().is_allowed());
    }
    assert!(limiter.check("last", &daily, 1).await.unwrap().is_allowed());
    let denied = limiter.check("denied", &daily, 1).await.unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(3_000)));
}

#[tokio::test]
async fn law_5_a_check_of_several_new_counts_that_is_denied_by_a_full_store_passes_at_retry_after() {
    for algorithm in ALGORITHMS {
        for seed in seeds(20) {
            let (limiter, store, clock) = store(50, WhenFull::Deny);
            let mut random = Random(seed);
            let new = 2 + random.below(9);
            for key in 0..50 - random.below(2) {
                let window = Duration::from_micros(1 + random.below(60_000_000));
                let _ = limiter.check(key, &Policy::new("p", 1, window).unwrap(), 1).await.unwrap();
            }
            let mut check = Check::new("new", &Policy::per_minute("new-0", 10).unwrap().with_algorithm(algorithm), 1);
            for number in 1..new {
                let policy = Policy::per_minute(format!("new-{number}"), 10).unwrap().with_algorithm(algorithm);
                check = check.and("new", &policy, 1);
            }
            let denied = limiter.check_all(check.clone()).await.unwrap();
            assert!(!denied.is_allowed());
            clock.advance(denied.retry_after().unwrap());
            assert!(
                limiter.check_all(check).await.unwrap().is_allowed(),
                "{algorithm:?}, seed {seed}, {new} new counts"
            );
            assert_eq!(store.evicted(), 0);
        }
    }
}

#[tokio::test]
async fn law_5_a_check_of_more_new_counts_than_there_are_places_is_denied_without_a_wait() {
    let policies = ["first", "second", "third"].map(|name| Policy::per_minute(name, 10).unwrap());
    let check = || Check::new("new", &policies[0], 1).and("new", &policies[1], 1);
    let (limiter, store, clock) = store(2, WhenFull::Deny);
    for other in ["none", "live", "idle"] {
        match other {
            "live" => assert!(limiter.check("other", &policies[0], 1).await.unwrap().is_allowed()),
            "idle" => clock.advance(2 * MINUTE),
            _ => {}
        }
        let denied = limiter.check_all(check().and("new", &policies[2], 1)).await.unwrap();
        assert_eq!((denied.is_allowed(), denied.retry_after()), (false, None), "{other}");
        let free = limiter.check_all(check().and("new", &policies[2], 0)).await;
        assert!(other != "none" || free.unwrap().is_allowed(), "a cost of 0 needs no place");
        limiter.reset("new", &policies[0]).await.unwrap();
        limiter.reset("new", &policies[1]).await.unwrap();
    }
    assert!(limiter.check_all(check()).await.unwrap().is_allowed());
    assert_eq!(store.evicted(), 0);
}

#[tokio::test]
async fn law_5_a_check_of_two_new_counts_waits_for_the_second_place_and_not_longer() {
    for when in [0, 1] {
        let (limiter, _store, clock) = store(4 + when, WhenFull::Deny);
        let [policy, daily] = ["p", "daily"].map(|name| Policy::per_minute(name, 10).unwrap());
        for key in 0..4_u64 {
            let _ = limiter.check(key, &policy, 1).await.unwrap();
            clock.advance(Duration::from_secs(1));
        }
        let both = || Check::new("new", &policy, 1).and("new", &daily, 1);
        let wait = limiter.check_all(both()).await.unwrap().retry_after().unwrap();
        assert_eq!(wait, MINUTE - Duration::from_secs(if when == 0 { 3 } else { 4 }));
        clock.advance(wait - Duration::from_micros(1));
        assert!(!limiter.check_all(both()).await.unwrap().is_allowed());
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check_all(both()).await.unwrap().is_allowed());
    }
}
