//! What opens a closed breaker.

use std::time::Duration;

use tollgate::{ErrorKind, Limiter, failure::BreakerSettings};

use super::{DEADLINE, MS, check, checks, concurrent_checks, opened};
use crate::support::stopwatch::Stopwatch;
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

#[tokio::test(start_paused = true)]
async fn closed_opens_after_five_failures_in_a_row() {
    let store = UnhealthyStore::new(UNAVAILABLE);
    let limiter = Limiter::new(store.clone());
    for _ in 0..3 {
        checks(&limiter, 4).await;
        store.set_health(Health::Healthy);
        check(&limiter).await.unwrap();
        store.set_health(UNAVAILABLE);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    checks(&limiter, 4).await;
    assert!(!limiter.is_breaker_open(), "a success resets the count");
    checks(&limiter, 1).await;
    assert!(limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn closed_opens_after_three_timeouts_in_a_row() {
    let store = UnhealthyStore::new(Health::Silent);
    let limiter = Limiter::new(store.clone());
    checks(&limiter, 2).await;
    store.set_health(Health::Healthy);
    check(&limiter).await.unwrap();
    store.set_health(Health::Silent);
    checks(&limiter, 2).await;
    assert!(!limiter.is_breaker_open(), "a success resets the count");
    let stopwatch = Stopwatch::start();
    assert_eq!(check(&limiter).await, Err(ErrorKind::Deadline));
    stopwatch.assert_elapsed(DEADLINE);
    assert!(limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn concurrent_timeouts_count_once() {
    let limiter = Limiter::new(UnhealthyStore::new(Health::Silent));
    for round in 1..=3 {
        concurrent_checks(&limiter, 6).await;
        assert_eq!(limiter.is_breaker_open(), round == 3, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_under_load_is_one_failure() {
    let store = UnhealthyStore::new(Health::Healthy);
    let limiter = Limiter::new(store.clone());
    for _ in 0..4 {
        store.set_health(UNAVAILABLE);
        concurrent_checks(&limiter, 100).await;
        assert!(!limiter.is_breaker_open());
        // Longer than the window of the failure rate, which would open the breaker too.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    concurrent_checks(&limiter, 100).await;
    assert!(limiter.is_breaker_open(), "five times in a row");
}

#[tokio::test(start_paused = true)]
async fn closed_opens_when_half_of_twenty_fail_within_a_second() {
    let store = UnhealthyStore::new(Health::Healthy);
    let limiter = Limiter::new(store.clone());
    checks(&limiter, 100).await;
    for pair in 1..=10 {
        assert!(!limiter.is_breaker_open(), "{pair}");
        for health in [UNAVAILABLE, Health::Healthy] {
            store.set_health(health);
            let _ = check(&limiter).await;
        }
    }
    assert!(limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn closed_stays_closed_when_fewer_than_half_fail_or_over_a_longer_time() {
    let store = UnhealthyStore::new(Health::Healthy);
    let limiter = Limiter::new(store.clone());
    for (answers, pause) in [(2, MS), (1, Duration::from_millis(120))] {
        for _ in 0..100 {
            store.set_health(UNAVAILABLE);
            checks(&limiter, 1).await;
            store.set_health(Health::Healthy);
            checks(&limiter, answers).await;
            tokio::time::sleep(pause).await;
            assert!(!limiter.is_breaker_open());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A breaker that opened on these errors would never close: each probe gets the same error.
#[tokio::test(start_paused = true)]
async fn errors_that_a_pause_cannot_fix_neither_open_the_breaker_nor_keep_it_open() {
    for kind in [ErrorKind::BadKey, ErrorKind::InvalidCall, ErrorKind::StoreMisconfigured] {
        let store = UnhealthyStore::new(Health::Fails(kind));
        let limiter = Limiter::new(store.clone());
        checks(&limiter, 100).await;
        concurrent_checks(&limiter, 100).await;
        assert_eq!((limiter.is_breaker_open(), store.sent()), (false, 200), "{kind:?}");

        let (limiter, store) = opened(UNAVAILABLE).await;
        store.set_health(Health::Fails(kind));
        tokio::time::sleep(Duration::from_millis(121)).await;
        assert_eq!(check(&limiter).await, Err(kind));
        assert!(!limiter.is_breaker_open(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_breaker_every_check_is_sent() {
    for breaker in [
        None,
        Some(
            BreakerSettings::default()
                .with_consecutive_failures(0)
                .with_consecutive_timeouts(0)
                .with_failure_rate_min_samples(0),
        ),
    ] {
        for health in [UNAVAILABLE, Health::Silent] {
            let store = UnhealthyStore::with_breaker(health, breaker);
            let limiter = Limiter::new(store.clone());
            checks(&limiter, 20).await;
            concurrent_checks(&limiter, 100).await;
            assert_eq!((store.sent(), limiter.is_breaker_open()), (120, false), "{breaker:?}");
        }
    }
}
