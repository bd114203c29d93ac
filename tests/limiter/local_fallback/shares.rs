//! The share of an instance: what the fallback admits while the store is unavailable.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tollgate::store::{Answer, FailingStore, SettleAnswer, Store, Verdict, WhenFull};
use tollgate::{
    Algorithm, Check, Decision, ErrorKind, FailurePolicy, GlobalKey, Key, Limiter, ManualClock, MemoryStore, Policy,
    RateLimitLayer, Route, decision::Source, policy::HoldSettings,
};
use tower::{Service, ServiceBuilder, ServiceExt};

use super::{WINDOW, admitted, check, one_of_eight, per_minute, with_little_room};
use crate::support::counting::{CountingService, EmptyRequest, layer, status};
use crate::support::stopwatch::Stopwatch;
use crate::support::unhealthy_store::{Health, UNAVAILABLE};
use crate::support::{DownStore, SilentStore, says};

#[tokio::test(start_paused = true)]
async fn an_instance_may_spend_its_share_rounded_up() {
    for (limit, share) in [(1, 1), (7, 1), (8, 1), (9, 2), (80, 10)] {
        let limiter = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 8);
        assert_eq!(admitted(&limiter, &per_minute(limit)).await, share, "{limit}");
        let bucket = per_minute(limit).with_algorithm(Algorithm::TokenBucket).with_burst(2 * limit);
        let limiter =
            Limiter::new(DownStore).with_local_fallback(MemoryStore::new().with_clock(ManualClock::default()), 8);
        assert_eq!(admitted(&limiter, &bucket).await, (2 * limit).div_ceil(8), "{limit}");
    }
    let error = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 0).validated().unwrap_err();
    says(error, "0 instances would leave no share; ");
}

/// A store that is down, and has counted this number of instances.
#[derive(Debug)]
struct Counted(u32);

impl Store for Counted {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        DownStore.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        DownStore.reset(key, policy)
    }

    fn instances(&self) -> Option<u32> {
        Some(self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_has_no_share_of_a_store_that_has_counted_none() {
    let limiter = |counted| Limiter::new(Counted(counted)).with_local_fallback(MemoryStore::new(), None);
    assert!(limiter(0).check("k", &per_minute(80), 1).fail_local().await.is_err());
    assert_eq!(admitted(&limiter(8), &per_minute(80)).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_share_follows_a_changed_limit() {
    let limiter = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 8);
    let admitted_at = async |limit| admitted(&limiter, &per_minute(limit)).await;
    assert_eq!((admitted_at(80).await, admitted_at(160).await, admitted_at(80).await), (10, 10, 0));
}

/// The share in `q` would reveal the number of instances.
#[tokio::test(start_paused = true)]
async fn headers_contain_the_whole_limit_and_the_remaining_units_of_the_share() {
    let limiter = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 8);
    let layer = layer(limiter, 16).fail_local().with_decision_in_response(true);
    let mut service = ServiceBuilder::new().layer(layer).service(CountingService::default());
    for (status, remaining) in [(200, 1), (200, 0), (429, 0)] {
        let response = service.ready().await.unwrap().call(EmptyRequest::default()).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["ratelimit-policy"], r#""all";q=16;w=60"#);
        assert_eq!(response.headers()["ratelimit"], format!(r#""all";r={remaining};t=60"#));
        assert_eq!(response.headers().contains_key("retry-after"), status == 429);
        let decision = response.extensions().get::<Decision>().unwrap();
        assert_eq!((decision.source(), decision.available()), (Source::Local, Some(remaining)));
        assert_eq!(decision.policies()[0].policy.limit(), 16);
        assert!(decision.time().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn fail_local_without_a_fallback_is_a_configuration_error() {
    let limiter = Limiter::new(MemoryStore::new());
    let layer = layer(limiter.clone(), 9);
    says(layer.clone().fail_local().validated().unwrap_err(), "fail_local needs a limiter with a local fallback: ");
    let route = Route::new().cost(2).fail_local();
    says(layer.route("/search", route).validated().unwrap_err(), "fail_local needs a limiter with a local fallback: ");
    // A check reports the error before the first outage, and charges nothing.
    let error = limiter.check("k", &per_minute(9), 1).fail_local().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCall);
    assert!(error.to_string().contains("Limiter::with_local_fallback"), "{error}");
    assert_eq!(limiter.peek("k", &per_minute(9)).await.unwrap().available(), Some(9));
    let decision: Decision = FailurePolicy::Local.resolve(Err(error));
    assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Closed));
}

#[tokio::test(start_paused = true)]
async fn each_route_chooses_its_failure_policy() {
    let limiter = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 8);
    assert!(limiter.check("k", &per_minute(8), 1).await.is_err(), "the check did not ask for the fallback");
    let layer = RateLimitLayer::new(limiter, per_minute(8), GlobalKey).fail_local();
    let open = ServiceBuilder::new().layer(layer.clone().fail_open()).service(CountingService::default());
    let mut service = ServiceBuilder::new().layer(layer).service(CountingService::default());
    assert_eq!(status(&mut service).await, StatusCode::OK);
    assert_eq!(status(&mut service).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&mut open.clone()).await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_outage_gives_no_key_a_fresh_budget() {
    let log = per_minute(80);
    let kinds = [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow];
    let policies = kinds.map(|kind| log.clone().with_algorithm(kind));
    for policy in policies.iter().chain([&log.clone().with_algorithm(Algorithm::TokenBucket)]) {
        for (before, after) in [(0, 10), (1, 9), (7, 3), (10, 0), (30, 0)] {
            let (limiter, store, _clock) = one_of_eight();
            for _ in 0..before {
                assert_eq!(check(&limiter, policy, 1).await.source(), Source::Store);
            }
            store.set_health(UNAVAILABLE);
            assert_eq!(admitted(&limiter, policy).await, after, "{before} before, {policy:?}");
        }
    }
}

/// Other instances may not have noticed yet that the store is back, and have debts of the key.
#[tokio::test(start_paused = true)]
async fn for_a_second_after_an_outage_an_instance_without_debts_spends_no_more_than_its_share() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    for _ in 0..100 {
        assert!(limiter.check("other", &policy, 1).await.is_err(), "opens the breaker, and leaves no debt");
    }
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(130)).await;
    let _ = limiter.peek("other", &policy).await.unwrap();
    assert_eq!(admitted(&limiter, &policy).await, 10);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(admitted(&limiter, &policy).await, 0);
    tokio::time::sleep(Duration::from_millis(101)).await;
    assert_eq!(admitted(&limiter, &policy).await, 70);
}

/// Units above the share count as well, so that the share is not free too early.
#[tokio::test(start_paused = true)]
async fn units_admitted_above_the_share_count_until_they_leave_the_window() {
    let (limiter, store, clock) = one_of_eight();
    assert!(check(&limiter, &per_minute(80), 10).await.is_allowed());
    clock.advance(WINDOW / 2);
    assert!(check(&limiter, &per_minute(80), 10).await.is_allowed());
    store.set_health(UNAVAILABLE);
    clock.advance(WINDOW / 2);
    assert_eq!(admitted(&limiter, &per_minute(80)).await, 0);
    clock.advance(WINDOW / 2);
    assert_eq!(admitted(&limiter, &per_minute(80)).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_is_denied_with_a_wait_of_a_second() {
    let (limiter, store, _clock) = one_of_eight();
    store.set_health(UNAVAILABLE);
    let denied = check(&limiter, &per_minute(80), 11).await;
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(check(&limiter, &per_minute(80), 81).await.retry_after(), None, "it never fits");
    assert!(check(&limiter, &per_minute(80), 10).await.is_allowed());
    assert_eq!(check(&limiter, &per_minute(80), 1).await.retry_after(), Some(WINDOW), "the share is spent");
}

#[tokio::test(start_paused = true)]
async fn law_4_a_peek_that_fails_local_reports_whether_the_share_admits_a_cost_of_1() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    let peek = async || limiter.peek("k", &policy).fail_local().await.unwrap();
    store.set_health(UNAVAILABLE);
    for _ in 0..10 {
        assert!(peek().await.is_allowed());
        assert!(check(&limiter, &policy, 1).await.is_allowed());
    }
    for _ in 0..3 {
        let spent = peek().await;
        assert_eq!((spent.is_allowed(), spent.source(), spent.available()), (false, Source::Local, Some(0)));
        assert_eq!(spent.retry_after(), Some(WINDOW));
    }
    assert!(!check(&limiter, &policy, 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn law_2_units_that_the_store_admits_are_not_spent_in_the_shared_bucket_of_a_full_fallback() {
    let (limiter, store, _clock) = with_little_room(1, WhenFull::ShareOneKey).await;
    let policy = per_minute(80);
    for key in 0..30_u64 {
        assert!(limiter.check(key, &policy, 1).fail_local().await.unwrap().is_allowed());
    }
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    assert!(!limiter.check("other", &policy, 1).fail_local().await.unwrap().is_allowed(), "new keys share the bucket");
}

/// What has flowed back into the whole bucket meanwhile is no debt.
#[tokio::test(start_paused = true)]
async fn units_above_the_share_of_a_bucket_that_are_recorded_or_settled_are_charged_when_the_store_is_back() {
    let tokens = per_minute(80).with_algorithm(Algorithm::TokenBucket).with_holds(HoldSettings::new());
    for (is_held, seconds, left) in [(false, 0, 40), (true, 0, 40), (false, 15, 60), (false, 60, 80)] {
        let clock = ManualClock::default();
        let memory = || MemoryStore::new().with_clock(clock.clone());
        let store = FailingStore::over(memory());
        let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8).without_notices();
        if is_held {
            let hold = limiter.hold("k", &tokens, 10).fail_local().await.unwrap().into_result().unwrap();
            assert_eq!(hold.settle(40).await.unwrap(), SettleAnswer::Settled);
        } else {
            limiter.record("k", &tokens, 40).await.unwrap();
        }
        clock.advance(Duration::from_secs(seconds));
        store.recover();
        for _ in 0..2 {
            // An answer of the store starts the debits.
            let _ = limiter.peek("k", &tokens).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let available = limiter.peek("k", &tokens).await.unwrap().available();
        assert_eq!(available, Some(left), "held: {is_held}, after {seconds} s");
    }
}

/// A silent store costs the deadline until the breaker opens, then nothing.
#[tokio::test(start_paused = true)]
async fn local_answers_at_once_while_the_breaker_is_open() {
    let silent = Limiter::new(SilentStore).with_local_fallback(MemoryStore::new(), 1);
    let stopwatch = Stopwatch::start();
    assert!(check(&silent, &per_minute(80), 1).await.is_allowed());
    stopwatch.assert_elapsed(Duration::from_millis(50));
    let (limiter, store, _clock) = one_of_eight();
    store.set_health(Health::Silent);
    for _ in 0..3 {
        let _ = check(&limiter, &per_minute(80), 1).await;
    }
    let start = Instant::now();
    assert_eq!(admitted(&limiter, &per_minute(80)).await, 7);
    assert_eq!(start.elapsed(), Duration::ZERO);
}
