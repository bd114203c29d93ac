//! What a check charges, and what it reports.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tollgate::{Check, Policy, clock::Clock};

use crate::failure::{Tested, ensure, ensure_eq};
use crate::{feature::Feature, tested_store::TestedStore};

pub(super) async fn the_whole_cost_is_charged(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = Policy::per_minute("p", 100)?.with_algorithm(algorithm);
        for (cost, left) in [(40, 60), (1, 59), (59, 0)] {
            let decision = store.check("k", &policy, cost).await?;
            ensure!(decision.is_allowed(), "{algorithm:?}: a cost of {cost} was denied at {} of 100", left + cost);
            ensure_eq!(decision.available(), Some(left), "{algorithm:?}: available after a cost of {cost}");
        }
    }
    Ok(())
}

/// Other limiters were off by one, or admitted a cost of 10 at 99 of 100.
pub(super) async fn every_limit_is_admitted_to_the_last_unit(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        for limit in [1, 2, 3, 99, 100] {
            let key = format!("{algorithm:?} {limit}");
            let policy = Policy::per_minute("p", limit)?.with_algorithm(algorithm);
            for remaining in (0..limit).rev() {
                ensure_eq!(
                    store.check(key.as_str(), &policy, 1).await?.available(),
                    Some(remaining),
                    "{key}: available"
                );
            }
            ensure!(!store.check(key.as_str(), &policy, 1).await?.is_allowed(), "{key}: one unit more was admitted");
        }
        let key = format!("{algorithm:?} weighted");
        let policy = Policy::per_minute("p", 100)?.with_algorithm(algorithm);
        ensure!(store.check(key.as_str(), &policy, 99).await?.is_allowed(), "{key}: 99 of 100 were denied");
        ensure!(!store.check(key.as_str(), &policy, 10).await?.is_allowed(), "{key}: 10 more than 99 were admitted");
    }
    Ok(())
}

pub(super) async fn a_peek_charges_nothing(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = Policy::per_minute("p", 3)?.with_algorithm(algorithm);
        for _ in 0..5 {
            ensure_eq!(store.peek("k", &policy).await?.available(), Some(3), "{algorithm:?}: available after a peek");
        }
        let _ = store.check("k", &policy, 2).await?;
        for _ in 0..5 {
            ensure_eq!(store.peek("k", &policy).await?.available(), Some(1), "{algorithm:?}: available after a peek");
        }
    }
    Ok(())
}

pub(super) async fn a_cost_of_0_always_passes_and_charges_nothing(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = Policy::per_minute("p", 3)?.with_algorithm(algorithm);
        for _ in 0..10 {
            let fresh = store.check("k", &policy, 0).await?;
            ensure_eq!((fresh.is_allowed(), fresh.available()), (true, Some(3)), "{algorithm:?}: allowed, available");
            let standing = &fresh.policies()[0];
            ensure_eq!((standing.next, standing.reset), (Duration::ZERO, Duration::ZERO), "{algorithm:?}: next, reset");
        }
        let _ = store.check("k", &policy, 3).await?;
        let spent = store.check("k", &policy, 0).await?;
        ensure_eq!((spent.is_allowed(), spent.available()), (true, Some(0)), "{algorithm:?}: allowed, available");
        ensure!(spent.policies()[0].reset > Duration::ZERO, "{algorithm:?}: the reset of a spent count is zero");
    }
    Ok(())
}

pub(super) async fn a_cost_above_the_limit_never_fits_and_has_no_retry_after(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 10)?.with_algorithm(algorithm);
        for cost in [11, u64::MAX] {
            let decision = store.check(key.as_str(), &policy, cost).await?;
            ensure!(!decision.is_allowed(), "{key}: a cost of {cost} was admitted under a limit of 10");
            ensure_eq!(
                (decision.retry_after(), decision.available()),
                (None, Some(10)),
                "{key}: retry_after, available"
            );
        }
        ensure!(store.check(key.as_str(), &policy, 10).await?.is_allowed(), "{key}: the denials left fewer than 10");
    }
    let huge = store.per_minute("huge", Policy::MAX_LIMIT)?;
    ensure_eq!(
        store.check("k", &huge, Policy::MAX_LIMIT).await?.available(),
        Some(0),
        "available under the largest limit"
    );
    Ok(())
}

pub(super) async fn the_verdict_has_the_time_of_the_clock(store: TestedStore) -> Tested {
    let policy = store.per_minute("p", 10)?;
    for passed in [0, 1, 61_000_001] {
        store.clock.advance(Duration::from_micros(passed));
        let now_us = store.clock.now_us();
        let decision = store.check("k", &policy, 1).await?;
        ensure_eq!(decision.time_us(), now_us, "time of the verdict; does the store read the fixture's clock?");
    }
    Ok(())
}

pub(super) async fn keys_and_policies_have_counts_of_their_own(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = |name| Policy::per_minute(name, 2).map(|policy| policy.with_algorithm(algorithm));
        let (this, that) = (policy("this")?, policy("that")?);
        let _ = store.check("a", &this, 2).await?;
        for (key, policy) in [("b", &this), ("A", &this), ("a", &that), ("b", &that)] {
            let name = policy.name();
            ensure_eq!(store.peek(key, policy).await?.available(), Some(2), "{algorithm:?}: {key:?} under {name:?}");
        }
        // One check may charge one key under several policies, and several keys under one policy.
        let check = Check::new("c", &this, 1).and("d", &this, 2).and("c", &that, 2);
        ensure!(store.check_all(check).await?.is_allowed(), "{algorithm:?}: a check of fresh counts was denied");
        for (key, policy, left) in [("c", &this, 1), ("d", &this, 0), ("c", &that, 0), ("d", &that, 2)] {
            let name = policy.name();
            ensure_eq!(store.peek(key, policy).await?.available(), Some(left), "{algorithm:?}: {key:?} under {name:?}");
        }
    }
    Ok(())
}

pub(super) async fn law_6_peeks_and_denials_keep_no_key(store: TestedStore) -> Tested {
    let before = store.count_of_keys()?;
    for algorithm in store.algorithms()? {
        let policy = Policy::per_minute("p", 10)?.with_algorithm(algorithm);
        for n in 0..20_u64 {
            let _ = store.peek(n, &policy).await?;
            let _ = store.check(n, &policy, 11).await?;
        }
        ensure_eq!(store.count_of_keys()?, before, "{algorithm:?}: keys that are kept after peeks and denials");
    }
    let policy = store.per_minute("p", 10)?;
    let _ = store.check("k", &policy, 10).await?;
    let spent = store.count_of_keys()?;
    for _ in 0..50 {
        let _ = store.check("k", &policy, 1).await?;
    }
    ensure_eq!(store.count_of_keys()?, spent, "keys that are kept after denials of a spent key");
    Ok(())
}

/// A store may drop such keys when others are charged, or by the clock of its back end. Therefore the test charges new
/// keys and lets both clocks go on.
pub(super) async fn law_6_keys_whose_counts_are_over_are_dropped(store: TestedStore) -> Tested {
    const WINDOW: Duration = Duration::from_millis(100);
    const KEYS_AT_ONCE: u64 = 50;
    const AT_LEAST: u64 = 200;
    const MOST_TIME: Duration = Duration::from_secs(3);
    let before = store.count_of_keys()?;
    for algorithm in store.algorithms()? {
        let policy = Policy::new(format!("{algorithm:?}"), 10, WINDOW)?.with_algorithm(algorithm);
        let (mut charged, started) = (0, Instant::now());
        loop {
            for n in charged..charged + KEYS_AT_ONCE {
                let _ = store.check(n, &policy, 1).await?;
            }
            charged += KEYS_AT_ONCE;
            store.clock.advance(Duration::from_secs(60));
            let kept = store.count_of_keys()?.saturating_sub(before) as u64;
            if charged >= AT_LEAST && kept <= charged / 2 {
                break;
            }
            ensure!(
                started.elapsed() < MOST_TIME,
                "{algorithm:?}: of {charged} keys whose windows of {WINDOW:?} are over, {kept} are kept"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

pub(super) async fn rejected_requests_count_if_the_policy_says_so(store: TestedStore) -> Tested {
    store.requires(Feature::CountRejected)?;
    for algorithm in store.algorithms_of(&[Feature::SlidingWindowLog, Feature::TokenBucket])? {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 2)?.with_algorithm(algorithm).with_denials_counted(true);
        ensure!(store.check(key.as_str(), &policy, 2).await?.is_allowed());
        // A client that retries every second stays denied …
        for second in 1..=200 {
            store.clock.advance(Duration::from_secs(1));
            let retried = store.check(key.as_str(), &policy, 2).await?;
            ensure!(!retried.is_allowed(), "{key}: the rejections of {second} s were not counted");
        }
        // … and a client that waits for the returned time passes.
        let wait = store.check(key.as_str(), &policy, 2).await?.retry_after().unwrap_or_default();
        ensure_eq!(wait, Duration::from_secs(60), "{key}: retry_after");
        store.clock.advance(wait);
        ensure!(store.check(key.as_str(), &policy, 2).await?.is_allowed(), "{key}: denied at retry_after");
        // Neither a peek nor a cost that can never pass is counted.
        store.clock.advance(Duration::from_secs(60));
        let _ = store.check(key.as_str(), &policy, 3).await?;
        ensure_eq!(store.peek(key.as_str(), &policy).await?.available(), Some(2), "{key}: available");
    }
    // A denial by another policy of the same check counts as well.
    let (counting, other) = (store.per_minute("c", 10)?.with_denials_counted(true), store.per_minute("o", 1)?);
    for _ in 0..4 {
        let _ = store.check_all(Check::new("k", &counting, 1).and("k", &other, 1)).await?;
    }
    ensure_eq!(
        store.peek("k", &counting).await?.available(),
        Some(6),
        "available after one charge and three rejections"
    );
    Ok(())
}
