//! Pauses that an upstream asks for.

use std::time::Duration;

use axum::response::IntoResponse;
use http::{HeaderMap, StatusCode};
use tokio::task::JoinSet;
use tollgate::{Algorithm, Key, Limiter, Policy, ThrottleLayer, decision::Source, throttle::Throttled};
use tower::{Layer, Service, ServiceExt};

use super::upstream::{SlowStore, Upstream, call, limiter, memory, millis, secs};
use crate::support::{counting::EmptyRequest, per_minute};

fn hundred_per_second(limiter: Limiter) -> ThrottleLayer {
    ThrottleLayer::new(limiter, Policy::per_second("p", 100).unwrap(), "upstream")
}

#[tokio::test(start_paused = true)]
async fn after_a_429_no_call_is_made_for_retry_after_and_then_calls_resume_one_by_one() {
    let upstream = Upstream::first(429, &[("retry-after", "2")]);
    let client = hundred_per_second(limiter()).layer(upstream.clone());
    assert_eq!(call(&client).await.unwrap(), StatusCode::TOO_MANY_REQUESTS, "the response is passed on");
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        calls.spawn(async move { call(&client).await.unwrap() });
    }
    assert!(calls.join_all().await.iter().all(|status| *status == 200));
    let times = &upstream.calls()[1..];
    assert!(times[0] >= secs(2) && times[0] < millis(2_010), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= millis(9)), "a herd: {times:?}");
    assert!(times[49] < secs(3), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_response_with_nothing_left_pauses_until_the_reset() {
    let upstream = Upstream::first(200, &[("ratelimit", r#""burst";r=5;t=1, "daily";r=0;t=7"#)]);
    let client = hundred_per_second(limiter()).layer(upstream.clone());
    for _ in 0..2 {
        assert_eq!(call(&client).await.unwrap(), StatusCode::OK);
    }
    upstream.assert_calls(&[0, 7].map(secs));
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_already_are_held_back_too() {
    let upstream = Upstream::first(503, &[("retry-after", "3")]).with_latency(millis(150));
    let policy = Policy::per_second("p", 5).unwrap().with_algorithm(Algorithm::TokenBucket);
    let client = ThrottleLayer::new(limiter(), policy.with_burst(1), "upstream").layer(upstream.clone());
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        calls.spawn(async move { call(&client).await.unwrap() });
    }
    calls.join_all().await;
    let times = upstream.calls();
    assert_eq!(times[0], secs(0));
    assert!(times[1] >= millis(3_150) && times[2] >= times[1] + millis(90), "{times:?}");
}

/// The store admits the second call while the first response is on its way, which asks for a pause.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_charged_when_a_pause_began_takes_another_turn() {
    let upstream = Upstream::first(429, &[("retry-after", "2")]).with_latency(millis(10));
    let store = SlowStore { store: memory(), latency: millis(20) };
    let limiter = Limiter::new(store);
    let policy = per_minute("p", 100);
    let client = ThrottleLayer::new(limiter.clone(), policy.clone(), "upstream").layer(upstream.clone());
    let (first, second) = tokio::join!(call(&client), async {
        tokio::time::sleep(millis(5)).await;
        call(&client).await
    });
    assert_eq!((first.unwrap(), second.unwrap()), (StatusCode::TOO_MANY_REQUESTS, StatusCode::OK));
    let times = upstream.calls();
    assert!((millis(20)..millis(22)).contains(&times[0]), "{times:?}");
    assert!(times[1] >= times[0] + millis(2_010), "{times:?}");
    let left = limiter.peek("upstream", &policy).await.unwrap().available();
    assert_eq!(left, Some(97), "the second call was charged before and after the pause");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_longer_than_a_call_may_wait_is_an_error_at_once() {
    let upstream = Upstream::first(429, &[("retry-after", "30")]);
    let client = hundred_per_second(limiter()).layer(upstream.clone());
    call(&client).await.unwrap();
    tokio::time::advance(secs(12)).await;
    let error = call(&client).await.unwrap_err();
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    assert_eq!(throttled.retry_after(), Some(secs(18)));
    assert_eq!(throttled.decision().map(|decision| decision.source()), Some(Source::Queue));
    assert_eq!(upstream.elapsed(), secs(12));
    tokio::time::advance(secs(9)).await;
    call(&client).await.unwrap();
    upstream.assert_calls(&[0, 30].map(secs));
}

/// A gateway responds to its own clients with the denial of its call.
#[tokio::test(start_paused = true)]
async fn the_response_of_a_gateway_whose_call_a_pause_has_denied_has_the_wait() {
    let client = hundred_per_second(limiter()).layer(Upstream::first(429, &[("retry-after", "30")]));
    call(&client).await.unwrap();
    tokio::time::advance(secs(12)).await;
    let error = call(&client).await.unwrap_err();
    let denied = error.downcast_ref::<Throttled>().unwrap().decision().unwrap();
    assert_eq!(denied.time(), None, "the store has not been asked");
    let response = denied.clone().into_result().unwrap_err().into_response();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "18");
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert!(!response.headers().contains_key("ratelimit"));
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_back_its_own_key_alone() {
    let upstream = Upstream::first(429, &[("retry-after", "5")]);
    let client = hundred_per_second(limiter())
        .with_key(|request: &EmptyRequest| Key::from(request.uri().path()))
        .layer(upstream.clone());
    for path in ["/a", "/b", "/a"] {
        let mut request = EmptyRequest::default();
        *request.uri_mut() = path.parse().unwrap();
        client.clone().oneshot(request).await.unwrap();
    }
    upstream.assert_calls(&[0, 0, 5].map(secs));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_pause_does_not_end_a_longer_one() {
    let upstream = Upstream::first(429, &[("retry-after", "5")]).with_latency(millis(100));
    upstream.respond(StatusCode::TOO_MANY_REQUESTS, HeaderMap::new());
    let client = hundred_per_second(limiter()).layer(upstream.clone());
    let (first, second) = tokio::join!(call(&client), call(&client));
    assert!([first, second].map(Result::unwrap).iter().all(|status| *status == 429));
    call(&client).await.unwrap();
    assert!(upstream.calls()[2] >= millis(5_100), "{:?}", upstream.calls());
}

/// The pause spaces calls at the rate of the policy, however long the store takes to answer.
#[tokio::test(start_paused = true)]
async fn after_a_pause_calls_reach_the_rate_of_the_policy_again() {
    let upstream = Upstream::first(429, &[("retry-after", "1")]);
    let limiter = Limiter::new(SlowStore { store: memory(), latency: millis(5) });
    let policy = Policy::per_second("p", 2_000).unwrap();
    let client = ThrottleLayer::new(limiter, policy, "upstream").layer(upstream.clone());
    call(&client).await.unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        let client = client.clone();
        calls.spawn(async move { call(&client).await.unwrap() });
    }
    calls.join_all().await;
    let times = &upstream.calls()[1..];
    assert!(times[0] >= secs(1), "{:?}", times[0]);
    assert!(times[999] < millis(1_800), "at 2 000 a second, 1 000 calls take half a second: {:?}", times[999]);
    assert!(times.windows(41).all(|some| some[40] - some[0] >= millis(5)), "a herd");
}

/// A response that is dropped before it arrives asks for nothing.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_over() {
    let upstream = Upstream::first(429, &[("retry-after", "5")]).with_latency(millis(100));
    let mut client = hundred_per_second(limiter()).layer(upstream.clone());
    let dropped = client.ready().await.unwrap().call(EmptyRequest::default());
    tokio::time::timeout(millis(50), dropped).await.unwrap_err();
    call(&client).await.unwrap();
    assert_eq!(upstream.calls(), [Duration::ZERO, millis(50)]);
}

/// The rate is enforced, behind a shadow policy.
#[tokio::test(start_paused = true)]
async fn after_a_pause_calls_under_a_shadow_policy_resume_at_the_rate_of_the_next_limit() {
    for (a_second, shortest, last) in [(10, millis(99), secs(3)), (50, millis(19), millis(2_200))] {
        let upstream = Upstream::first(429, &[("retry-after", "2")]);
        let rate = Policy::per_second("rate", a_second).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1);
        let shadow = per_minute("p", 1).with_shadow(true);
        let client = ThrottleLayer::new(limiter(), shadow, "upstream").and_limit(rate, 1).layer(upstream.clone());
        assert_eq!(call(&client).await.unwrap(), 429);
        let mut calls = JoinSet::new();
        for _ in 0..5 {
            let client = client.clone();
            calls.spawn(async move { call(&client).await.unwrap() });
        }
        assert!(calls.join_all().await.iter().all(|status| *status == 200));
        let times = &upstream.calls()[1..];
        assert!(times[0] >= secs(2) && times[4] < last, "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= shortest), "{times:?}");
    }
}

/// A shadow policy only reports, so nothing but the upstream keeps a call back.
#[tokio::test(start_paused = true)]
async fn a_shadow_policy_makes_no_call_wait_and_pauses_are_obeyed() {
    let upstream = Upstream::first(429, &[("retry-after", "2")]);
    let shadow = per_minute("p", 1).with_shadow(true);
    // As long as the pause, so a call may just wait for its end.
    let max_wait = secs(2);
    let client = ThrottleLayer::new(limiter(), shadow, "upstream").with_max_wait(max_wait).layer(upstream.clone());
    for _ in 0..3 {
        call(&client).await.unwrap();
    }
    upstream.assert_calls(&[0, 2, 2].map(secs));
}
