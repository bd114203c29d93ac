//! A policy that changes between two deployments, on live keys.

use std::time::Duration;

use tollgate::{Algorithm, Policy};

use crate::{ALGORITHMS, Bench};

fn per_minute(limit: u32, algorithm: Algorithm) -> Policy {
    Policy::per_minute("p", limit).unwrap().algorithm(algorithm)
}

pub(crate) async fn a_new_limit_holds_at_once_for_what_is_counted(bench: Bench) {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter, Algorithm::SlidingWindowLog] {
        let key = format!("{algorithm:?}");
        assert!(bench.check(&key, &per_minute(10, algorithm), 6).await.is_allowed());
        assert_eq!(bench.peek(&key, &per_minute(5, algorithm)).await.available(), Some(0));
        assert!(!bench.check(&key, &per_minute(5, algorithm), 1).await.is_allowed());
        assert_eq!(bench.peek(&key, &per_minute(20, algorithm)).await.available(), Some(14));
    }
    // A bucket's debt is time: at twice the rate it is worth twice the units.
    assert!(bench.check("b", &per_minute(10, Algorithm::TokenBucket), 6).await.is_allowed());
    assert_eq!(bench.peek("b", &per_minute(20, Algorithm::TokenBucket)).await.available(), Some(8));
}

pub(crate) async fn old_and_new_limits_side_by_side_share_the_count(bench: Bench) {
    let (old, new) = (per_minute(10, Algorithm::SlidingWindowLog), per_minute(20, Algorithm::SlidingWindowLog));
    let (mut by_old, mut by_new) = (0, 0);
    for _ in 0..30 {
        by_old += u32::from(bench.check("k", &old, 1).await.is_allowed());
        by_new += u32::from(bench.check("k", &new, 1).await.is_allowed());
    }
    assert_eq!((by_old, by_new), (5, 15));
}

pub(crate) async fn another_window_or_resolution_starts_a_fresh_count(bench: Bench) {
    let policy = |seconds| Policy::new("p", 10, Duration::from_secs(seconds)).unwrap();
    let coarse = policy(10).resolution(Duration::from_secs(1)).unwrap();
    for policy in [policy(10), policy(60), coarse] {
        assert_eq!(bench.peek("k", &policy).await.available(), Some(10));
        assert!(bench.check("k", &policy, 10).await.is_allowed());
        assert!(!bench.check("k", &policy, 1).await.is_allowed());
    }
}

pub(crate) async fn another_algorithm_starts_a_fresh_count(bench: Bench) {
    for algorithm in ALGORITHMS {
        let policy = per_minute(10, algorithm);
        assert_eq!(bench.peek("k", &policy).await.available(), Some(10));
        assert!(bench.check("k", &policy, 10).await.is_allowed());
        assert!(!bench.check("k", &policy, 1).await.is_allowed());
    }
}

pub(crate) async fn alternating_windows_do_not_reset_counts(bench: Bench) {
    for algorithm in ALGORITHMS {
        let window = |seconds| Policy::new("p", 10, Duration::from_secs(seconds)).unwrap().algorithm(algorithm);
        let mut admitted = 0;
        for _ in 0..30 {
            admitted += u32::from(bench.check("k", &window(60), 1).await.is_allowed());
            admitted += u32::from(bench.check("k", &window(50), 1).await.is_allowed());
        }
        assert_eq!(admitted, 20, "{algorithm:?}: each version has a budget of its own");
    }
}
