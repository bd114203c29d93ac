//! An open breaker: checks fail at once, and nothing but a probe is sent.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tokio_test::{assert_pending, task};
use tollgate::{ErrorKind, Limiter, RateLimitLayer};
use tower::ServiceBuilder;

use super::{check, checks, opened, policy};
use crate::support::counting::{CountingService, layer, status};
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

#[tokio::test(start_paused = true)]
async fn open_answers_at_once_and_sends_nothing_to_the_store() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    let start = Instant::now();
    checks(&limiter, 1_000).await;
    assert_eq!(check(&limiter).await, Err(ErrorKind::Unavailable));
    assert!(!limiter.check("k", &policy(), 1).await.unwrap_err().may_have_charged());
    assert_eq!((start.elapsed(), store.sent()), (Duration::ZERO, 5));
}

#[tokio::test(start_paused = true)]
async fn open_follows_the_failure_policy_of_the_route() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    let inner = CountingService::default();
    let layer: RateLimitLayer<_> = layer(limiter, 1);
    let start = Instant::now();
    for (layer, expected) in
        [(layer.clone().fail_open(), StatusCode::OK), (layer.fail_closed(), StatusCode::SERVICE_UNAVAILABLE)]
    {
        let mut service = ServiceBuilder::new().layer(layer).service(inner.share());
        assert_eq!(status(&mut service).await, expected);
    }
    assert_eq!((start.elapsed(), store.sent(), inner.calls()), (Duration::ZERO, 5, 1));
}

#[tokio::test(start_paused = true)]
async fn open_probes_after_a_tenth_of_a_second_one_at_a_time() {
    let (limiter, store) = opened(Health::Fails(ErrorKind::Unavailable)).await;
    store.set_health(Health::Silent);
    tokio::time::sleep(Duration::from_millis(99)).await;
    checks(&limiter, 10).await;
    assert_eq!(store.sent(), 5);
    tokio::time::sleep(Duration::from_millis(22)).await;
    let start = Instant::now();
    let mut probe = task::spawn(limiter.check("k", &policy(), 1));
    assert_pending!(probe.poll());
    checks(&limiter, 100).await;
    assert_eq!((start.elapsed(), store.sent()), (Duration::ZERO, 6), "the other checks do not wait for the probe");
}

/// Results of checks that were sent before the breaker opened are ignored.
#[tokio::test(start_paused = true)]
async fn late_results_change_nothing() {
    let store = UnhealthyStore::new(Health::Silent);
    let limiter = Limiter::new(store.clone());
    let mut late: Vec<_> = (0..40).map(|_| task::spawn(limiter.check("k", &policy(), 1))).collect();
    late.iter_mut().for_each(|late| assert_pending!(late.poll()));
    store.set_health(UNAVAILABLE);
    checks(&limiter, 5).await;
    let mut answered = late.split_off(20);
    store.set_health(Health::Healthy);
    // The second poll of each finds the store healthy.
    answered.iter_mut().for_each(|late| assert!(late.poll().is_ready()));
    assert!(limiter.is_breaker_open());
    tokio::time::sleep(Duration::from_millis(121)).await;
    check(&limiter).await.unwrap();
    store.set_health(UNAVAILABLE);
    late.iter_mut().for_each(|late| assert!(late.poll().is_ready()));
    assert!(!limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn without_traffic_nothing_happens() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!((store.sent(), limiter.is_breaker_open()), (5, true));
}
