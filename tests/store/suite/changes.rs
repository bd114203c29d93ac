//! A policy that changes between two deployments while its keys have live counts.

use std::time::Duration;

use tollgate::{Algorithm, Policy};

use super::{ALGORITHMS, Fixture};

fn per_minute(limit: u32, algorithm: Algorithm) -> Policy {
    Policy::per_minute("p", limit).unwrap().with_algorithm(algorithm)
}

pub(crate) async fn a_new_limit_applies_at_once_to_live_counts(fixture: Fixture) {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter, Algorithm::SlidingWindowLog] {
        let key = format!("{algorithm:?}");
        assert!(fixture.check(&key, &per_minute(10, algorithm), 6).await.is_allowed());
        assert_eq!(fixture.peek(&key, &per_minute(5, algorithm)).await.available(), Some(0));
        assert!(!fixture.check(&key, &per_minute(5, algorithm), 1).await.is_allowed());
        assert_eq!(fixture.peek(&key, &per_minute(20, algorithm)).await.available(), Some(14));
    }
    // The debt of a token bucket is a time: at twice the rate it is worth twice the units.
    assert!(fixture.check("b", &per_minute(10, Algorithm::TokenBucket), 6).await.is_allowed());
    assert_eq!(fixture.peek("b", &per_minute(20, Algorithm::TokenBucket)).await.available(), Some(8));
}

pub(crate) async fn old_and_new_limits_side_by_side_share_the_count(fixture: Fixture) {
    let (old, new) = (per_minute(10, Algorithm::SlidingWindowLog), per_minute(20, Algorithm::SlidingWindowLog));
    let (mut by_old, mut by_new) = (0, 0);
    for _ in 0..30 {
        by_old += u32::from(fixture.check("k", &old, 1).await.is_allowed());
        by_new += u32::from(fixture.check("k", &new, 1).await.is_allowed());
    }
    assert_eq!((by_old, by_new), (5, 15));
}

pub(crate) async fn another_window_or_resolution_starts_a_fresh_count(fixture: Fixture) {
    let policy = |seconds| Policy::new("p", 10, Duration::from_secs(seconds)).unwrap();
    let coarse = policy(10).with_resolution(Duration::from_secs(1)).unwrap();
    for policy in [policy(10), policy(60), coarse] {
        assert_eq!(fixture.peek("k", &policy).await.available(), Some(10));
        assert!(fixture.check("k", &policy, 10).await.is_allowed());
        assert!(!fixture.check("k", &policy, 1).await.is_allowed());
    }
}

pub(crate) async fn another_algorithm_starts_a_fresh_count(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let policy = per_minute(10, algorithm);
        assert_eq!(fixture.peek("k", &policy).await.available(), Some(10));
        assert!(fixture.check("k", &policy, 10).await.is_allowed());
        assert!(!fixture.check("k", &policy, 1).await.is_allowed());
    }
}

pub(crate) async fn alternating_windows_do_not_reset_counts(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let window = |seconds| Policy::new("p", 10, Duration::from_secs(seconds)).unwrap().with_algorithm(algorithm);
        let mut admitted = 0;
        for _ in 0..30 {
            admitted += u32::from(fixture.check("k", &window(60), 1).await.is_allowed());
            admitted += u32::from(fixture.check("k", &window(50), 1).await.is_allowed());
        }
        assert_eq!(admitted, 20, "{algorithm:?}: each window has its own budget");
    }
}

/// A rolling deployment from 1 000 an hour to 10, while a client sends requests to both versions.
pub(crate) async fn law_1_rejections_under_a_lower_limit_remove_no_units_that_a_higher_limit_admitted(
    fixture: Fixture,
) {
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::TokenBucket] {
        for (old_counts, resolution) in [(true, 1), (false, 1), (true, 1_000_000)] {
            let key = format!("{algorithm:?} {old_counts} {resolution}");
            let per_hour = |limit| Policy::per_hour("p", limit).unwrap().with_algorithm(algorithm);
            let (mut old, mut new) = (per_hour(1_000), per_hour(10).with_count_rejected(true));
            if algorithm == Algorithm::SlidingWindowLog {
                let resolution = Duration::from_micros(resolution);
                (old, new) = (old.with_resolution(resolution).unwrap(), new.with_resolution(resolution).unwrap());
            } else {
                // A small bucket is full again long before the old one.
                new = new.with_burst(1).unwrap();
            }
            let old = old.with_count_rejected(old_counts);
            assert!(fixture.check(&key, &new, 1).await.is_allowed());
            let mut by_old = 0;
            for _ in 0..200 {
                for cost in [90, 10] {
                    by_old += cost * u32::from(fixture.check(&key, &old, cost).await.is_allowed());
                }
                fixture.clock.advance(Duration::from_micros(1));
                assert!(!fixture.check(&key, &new, new.capacity()).await.is_allowed(), "{key}");
                fixture.clock.advance(Duration::from_micros(1));
            }
            // The rest is spent by counted rejections (log) or by the unit under the new limit (token bucket).
            assert_eq!(by_old, 900, "{key}");
            // Under the old limit, the log has no room until the hour has passed; the bucket refills continuously.
            fixture.clock.advance(Duration::from_secs(3_600) - Duration::from_millis(1));
            let spent = fixture.peek(&key, &old).await;
            let available = if algorithm == Algorithm::SlidingWindowLog { 0 } else { 999 };
            assert_eq!(spent.available(), Some(available), "{key}");
        }
    }
}
