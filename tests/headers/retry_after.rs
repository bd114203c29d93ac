//! Retry-After is the true wait, rounded up to seconds.

use std::time::Duration;

use axum::{Router, http::HeaderMap};
use tollgate::{
    Algorithm, Decision, Error, ErrorKind, FailurePolicy, GlobalKey, HeaderStyle, ManualClock, Policy, RateLimitLayer,
    headers::HeaderWriter,
};

use crate::support::app::{app, get_passes, limiter, limiter_and_clock};
use crate::support::http::get;

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];

fn limited(policy: Policy) -> (Router, ManualClock) {
    let (limiter, clock) = limiter_and_clock();
    (app(RateLimitLayer::new(limiter, policy, GlobalKey)), clock)
}

fn one_per(window: Duration) -> (Router, ManualClock) {
    limited(Policy::new("p", 1, window).unwrap())
}

/// A value of 0 would invite immediate retries, and a value rounded down would be too early.
#[tokio::test]
async fn law_5_waits_below_a_second_are_one_second() {
    for millis in 1..=999 {
        let (app, clock) = one_per(Duration::from_millis(millis));
        assert!(get_passes(&app, "/").await);
        assert_eq!(get(&app, "/").await.header("retry-after").as_deref(), Some("1"), "{millis} ms");
        clock.advance(Duration::from_secs(1));
        assert!(get_passes(&app, "/").await, "{millis} ms: a client that waits for Retry-After passes");
    }
}

#[tokio::test]
async fn law_5_waits_are_rounded_up_to_whole_seconds() {
    for (micros, seconds) in [(1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (59_000_001, 60), (60_000_000, 60)]
    {
        let (app, clock) = one_per(Duration::from_micros(micros));
        assert!(get_passes(&app, "/").await);
        assert_eq!(get(&app, "/").await.header("retry-after").unwrap(), seconds.to_string(), "{micros} us");
        clock.advance(Duration::from_micros(micros - 1));
        assert!(!get_passes(&app, "/").await, "{micros} us: denied a microsecond earlier");
        clock.advance(Duration::from_micros(1));
        assert!(get_passes(&app, "/").await, "{micros} us");
    }
}

#[tokio::test]
async fn law_5_a_client_that_waits_for_retry_after_passes_under_every_algorithm() {
    for algorithm in ALGORITHMS {
        let policy = Policy::new("p", 3, Duration::from_millis(7_300)).unwrap().with_algorithm(algorithm);
        let (app, clock) = limited(policy);
        let mut waits = 0;
        for step in 0..50 {
            let reply = get(&app, "/").await;
            if reply.status == 429 {
                let wait = reply.header("retry-after").unwrap().parse().unwrap();
                assert!(wait > 0, "{algorithm:?}");
                clock.advance(Duration::from_secs(wait));
                assert!(get_passes(&app, "/").await, "{algorithm:?}, step {step}: denied after {wait} s");
                waits += 1;
            }
            clock.advance(Duration::from_millis(137));
        }
        assert!(waits > 5, "{algorithm:?}: {waits} waits");
    }
}

/// A request with a higher cost has a longer wait.
#[tokio::test]
async fn law_5_the_wait_is_that_of_the_same_cost() {
    let (limiter, clock) = limiter_and_clock();
    let cost = |parts: &axum::http::request::Parts| if parts.uri.path() == "/search" { 3 } else { 1 };
    let limit = RateLimitLayer::new(limiter, Policy::per_minute("p", 3).unwrap(), GlobalKey).with_cost_fn(cost);
    let app = app(limit);
    for _ in 0..3 {
        assert!(get_passes(&app, "/").await);
        clock.advance(Duration::from_secs(10));
    }
    assert_eq!(get(&app, "/").await.header("retry-after").as_deref(), Some("30"));
    assert_eq!(get(&app, "/search").await.header("retry-after").as_deref(), Some("50"));
    clock.advance(Duration::from_secs(50));
    assert!(get_passes(&app, "/search").await);
}

/// A service without a layer writes the fields itself.
#[test]
fn a_denial_without_a_verdict_has_the_wait_of_an_outage_and_a_blocked_policy_has_none() {
    let written = |style, decision: &Decision| {
        let mut headers = HeaderMap::new();
        HeaderWriter::new(style).write(decision, &mut headers);
        let fields = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut fields: Vec<String> = fields.collect();
        fields.sort();
        fields
    };
    let away = |policy: FailurePolicy, kind| -> Decision { policy.resolve(Err(Error::new(kind, "away"))) };
    let blocked = limiter().try_check("k", &Policy::blocked("suspended").unwrap(), 1).unwrap();
    for (style, expected) in [
        (HeaderStyle::Draft11, &["cache-control: no-store", "retry-after: 1"][..]),
        (HeaderStyle::OpenAi, &["cache-control: no-store", "retry-after-ms: 1000", "retry-after: 1"]),
        (HeaderStyle::Hidden, &["cache-control: no-store"]),
    ] {
        assert_eq!(written(style, &away(FailurePolicy::Closed, ErrorKind::Unavailable)), expected, "{style:?}");
        assert_eq!(written(style, &away(FailurePolicy::Open, ErrorKind::Overloaded)), expected, "{style:?}");
        assert!(written(style, &away(FailurePolicy::Open, ErrorKind::Unavailable)).is_empty(), "{style:?}");
        assert_eq!(written(style, &blocked), ["cache-control: no-store"], "{style:?}");
    }
}
