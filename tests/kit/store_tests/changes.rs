//! A policy that changes between two deployments while its keys have live counts.

use std::time::Duration;

use tollgate::{Algorithm, ConfigError, Policy};

use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::{feature::Feature, tested_store::TestedStore};

fn per_minute(limit: u64, algorithm: Algorithm) -> Result<Policy, ConfigError> {
    Ok(Policy::per_minute("p", limit)?.with_algorithm(algorithm))
}

pub(super) async fn a_new_limit_applies_at_once_to_live_counts(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let (lower, limit, higher) =
            (per_minute(5, algorithm)?, per_minute(10, algorithm)?, per_minute(20, algorithm)?);
        ensure!(store.check(&key, &limit, 6).await?.is_allowed(), "{key}: 6 of 10 were denied");
        // The debt of a token bucket is a time: at twice the rate it is worth twice the units.
        let (by_lower, by_higher) = if algorithm == Algorithm::TokenBucket { (2, 8) } else { (0, 14) };
        let available = store.peek(&key, &lower).await?.available();
        ensure_eq!(available, Some(by_lower), "{key}: available under a limit of 5 after 6 of 10");
        ensure!(!store.check(&key, &lower, by_lower + 1).await?.is_allowed(), "{key}: more was admitted");
        let available = store.peek(&key, &higher).await?.available();
        ensure_eq!(available, Some(by_higher), "{key}: available under a limit of 20 after 6 of 10");
    }
    Ok(())
}

pub(super) async fn old_and_new_limits_side_by_side_share_the_count(store: TestedStore) -> Tested {
    store.requires(Feature::SlidingWindowLog)?;
    let (old, new) = (per_minute(10, Algorithm::SlidingWindowLog)?, per_minute(20, Algorithm::SlidingWindowLog)?);
    let (mut by_old, mut by_new) = (0, 0);
    for _ in 0..30 {
        by_old += u64::from(store.check("k", &old, 1).await?.is_allowed());
        by_new += u64::from(store.check("k", &new, 1).await?.is_allowed());
    }
    ensure_eq!((by_old, by_new), (5, 15), "admitted under a limit of 10, and under a limit of 20");
    Ok(())
}

pub(super) async fn another_window_or_resolution_starts_a_fresh_count(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = |seconds| Policy::new("p", 10, Duration::from_secs(seconds));
        let mut policies = vec![policy(10)?.with_algorithm(algorithm), policy(60)?.with_algorithm(algorithm)];
        if algorithm == Algorithm::SlidingWindowLog && store.requires(Feature::Resolution).is_ok() {
            policies.push(policy(10)?.with_resolution(Duration::from_secs(1)));
        }
        for policy in policies {
            ensure_eq!(store.peek("k", &policy).await?.available(), Some(10), "available at first under {policy:?}");
            ensure!(store.check("k", &policy, 10).await?.is_allowed(), "10 of 10 were denied under {policy:?}");
            ensure!(!store.check("k", &policy, 1).await?.is_allowed(), "11 of 10 were admitted under {policy:?}");
        }
    }
    Ok(())
}

pub(super) async fn another_algorithm_starts_a_fresh_count(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = per_minute(10, algorithm)?;
        ensure_eq!(store.peek("k", &policy).await?.available(), Some(10), "{algorithm:?}: available at first");
        ensure!(store.check("k", &policy, 10).await?.is_allowed(), "{algorithm:?}: 10 of 10 were denied");
        ensure!(!store.check("k", &policy, 1).await?.is_allowed(), "{algorithm:?}: 11 of 10 were admitted");
    }
    Ok(())
}

pub(super) async fn alternating_windows_do_not_reset_counts(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = |seconds| Policy::new("p", 10, Duration::from_secs(seconds));
        let windows = [policy(60)?.with_algorithm(algorithm), policy(50)?.with_algorithm(algorithm)];
        let mut admitted = 0;
        for _ in 0..30 {
            for policy in &windows {
                admitted += u64::from(store.check("k", policy, 1).await?.is_allowed());
            }
        }
        ensure_eq!(admitted, 20, "{algorithm:?}: admitted in two windows, each with a budget of 10");
    }
    Ok(())
}

/// A rolling deployment from 1 000 an hour to 10, while a client sends requests to both versions.
pub(super) async fn law_1_rejections_under_a_lower_limit_remove_no_units_that_a_higher_limit_admitted(
    store: TestedStore,
) -> Tested {
    store.requires(Feature::CountRejected)?;
    for algorithm in store.algorithms_of(&[Feature::SlidingWindowLog, Feature::TokenBucket])? {
        for (old_counts, resolution) in [(true, 1), (false, 1), (true, 1_000_000)] {
            let per_hour = |limit| Policy::per_hour("p", limit).map(|policy| policy.with_algorithm(algorithm));
            let (mut old, mut new) = (per_hour(1_000)?, per_hour(10)?.with_denials_counted(true));
            if algorithm == Algorithm::TokenBucket {
                // A small bucket is full again long before the old one.
                new = new.with_burst(1);
            } else if resolution > 1 && store.requires(Feature::Resolution).is_ok() {
                let resolution = Duration::from_micros(resolution);
                (old, new) = (old.with_resolution(resolution), new.with_resolution(resolution));
            }
            let key = format!("{algorithm:?} {old_counts} {resolution}");
            alternate(&store, &key, &old.with_denials_counted(old_counts), &new).await?;
        }
    }
    Ok(())
}

async fn alternate(store: &TestedStore, key: &str, old: &Policy, new: &Policy) -> Result<(), NotPassed> {
    ensure!(store.check(key, new, 1).await?.is_allowed(), "{key}: the first unit was denied");
    let mut by_old = 0;
    for _ in 0..200 {
        for cost in [90, 10] {
            by_old += cost * u64::from(store.check(key, old, cost).await?.is_allowed());
        }
        store.clock.advance(Duration::from_micros(1));
        let by_new = store.check(key, new, new.capacity()).await?;
        ensure!(!by_new.is_allowed(), "{key}: the lower limit admitted its capacity");
        store.clock.advance(Duration::from_micros(1));
    }
    // The rest is spent by counted denials (log) or by the unit under the new limit (token bucket).
    ensure_eq!(by_old, 900, "{key}: admitted by the higher limit");
    // Under the old limit, the log has no room until the hour has passed; the bucket refills continuously.
    store.clock.advance(Duration::from_secs(3_600) - Duration::from_millis(1));
    let available = if old.algorithm() == Algorithm::SlidingWindowLog { 0 } else { 999 };
    ensure_eq!(store.peek(key, old).await?.available(), Some(available), "{key}: available after the hour but 1 ms");
    Ok(())
}
