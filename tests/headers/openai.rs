//! The fields of OpenAI's API, and waits in milliseconds.

use std::time::Duration;

use axum::Router;
use http::{HeaderMap, HeaderValue, StatusCode};
use tollgate::headers::{HeaderFields, HeaderWriter};
use tollgate::{Algorithm, Decision, GlobalKey, HeaderStyle, Policy, RateLimitLayer};

use super::fields::{PAGE, STYLES, fields};
use crate::support::app::{app, down_limiter, get_passes, limiter_and_clock, per_minute};
use crate::support::http::{Reply, get};

fn millis(reply: &Reply) -> Option<u64> {
    reply.header("retry-after-ms").map(|millis| millis.parse().unwrap())
}

fn tokens(name: &str, limit: u64) -> Policy {
    Policy::per_minute(name, limit).unwrap().with_unit("tokens")
}

/// The page for users lists the fields of the first two responses.
#[tokio::test]
async fn requests_and_tokens_have_three_fields_each() {
    let (limiter, clock) = limiter_and_clock();
    let limit = RateLimitLayer::new(limiter, [per_minute(3), tokens("tokens", 90)], GlobalKey)
        .with_cost_of("tokens", 30)
        .with_headers(HeaderStyle::OpenAi);
    let app = app(limit);
    assert!(get_passes(&app, "/").await);
    clock.advance(Duration::from_secs(20));
    let limits = ["x-ratelimit-limit-requests: 3", "x-ratelimit-limit-tokens: 90"];
    for (left, resets) in [([1, 30], ["1m0s", "1m0s"]), ([0, 0], ["1m0s", "1m0s"]), ([0, 0], ["40s", "40s"])] {
        let expected = [
            limits[0].to_owned(),
            limits[1].to_owned(),
            format!("x-ratelimit-remaining-requests: {}", left[0]),
            format!("x-ratelimit-remaining-tokens: {}", left[1]),
            format!("x-ratelimit-reset-requests: {}", resets[0]),
            format!("x-ratelimit-reset-tokens: {}", resets[1]),
        ];
        let reply = get(&app, "/").await;
        assert_eq!(fields(&reply), expected);
        assert!(expected.iter().all(|field| PAGE.contains(&format!("`{field}`"))), "the page lacks a field");
        let refused = reply.status == 429;
        assert_eq!(reply.header("retry-after").as_deref(), refused.then_some("40"));
        assert_eq!(millis(&reply), refused.then_some(40_000));
    }
}

/// The minute has 3 requests left and the day 1; then the minute of tokens is spent and the day is not.
#[tokio::test]
async fn of_several_policies_in_one_unit_the_tightest_is_sent() {
    let (limiter, clock) = limiter_and_clock();
    let policies = [
        Policy::per_minute("minute", 4).unwrap(),
        Policy::per_day("day", 2).unwrap(),
        tokens("tokens-a-minute", 100),
        Policy::per_day("tokens-a-day", 10_000).unwrap().with_unit("tokens"),
        Policy::per_hour("bytes", 1).unwrap().with_unit("content-bytes").with_shadow(true),
        Policy::concurrent("streams", 9).unwrap(),
    ];
    let limit = RateLimitLayer::new(limiter, policies, GlobalKey)
        .with_cost_of("tokens-a-minute", 60)
        .with_cost_of("tokens-a-day", 60);
    let app = app(limit.with_headers(HeaderStyle::OpenAi));
    let allowed = get(&app, "/").await;
    assert_eq!(
        fields(&allowed),
        [
            "x-ratelimit-limit-requests: 2",
            "x-ratelimit-limit-tokens: 100",
            "x-ratelimit-remaining-requests: 1",
            "x-ratelimit-remaining-tokens: 40",
            "x-ratelimit-reset-requests: 24h0m0s",
            "x-ratelimit-reset-tokens: 1m0s",
        ]
    );
    clock.advance(Duration::from_micros(15_999_500));
    let denied = get(&app, "/").await;
    assert_eq!(denied.status, 429);
    assert_eq!(
        fields(&denied),
        [
            "x-ratelimit-limit-requests: 2",
            "x-ratelimit-limit-tokens: 100",
            "x-ratelimit-remaining-requests: 1",
            "x-ratelimit-remaining-tokens: 40",
            // Nothing has denied requests: this is when all of them are back.
            "x-ratelimit-reset-requests: 23h59m44.001s",
            // When the denied request passes.
            "x-ratelimit-reset-tokens: 44.001s",
        ]
    );
    assert_eq!(millis(&denied), Some(44_001));
}

#[tokio::test]
async fn a_policy_in_another_unit_has_no_fields_but_the_wait() {
    let (limiter, _clock) = limiter_and_clock();
    let limit = RateLimitLayer::new(limiter, per_minute(1).with_unit("content-bytes"), GlobalKey);
    let app = app(limit.with_headers(HeaderStyle::OpenAi));
    let allowed = get(&app, "/").await;
    assert_eq!((allowed.status, fields(&allowed).len()), (StatusCode::OK, 0));
    let denied = get(&app, "/").await;
    assert_eq!((fields(&denied).len(), millis(&denied)), (0, Some(60_000)));
}

/// An app with one unit per window, its clock, and the setting that adds the milliseconds to any style.
fn one_per(window: Duration, algorithm: Algorithm, style: HeaderStyle) -> (Router, tollgate::ManualClock) {
    let (limiter, clock) = limiter_and_clock();
    let policy = Policy::new("p", 1, window).unwrap().with_algorithm(algorithm);
    let limit = RateLimitLayer::new(limiter, policy, GlobalKey);
    (app(limit.with_headers(HeaderWriter::new(style).with_retry_after_ms(true))), clock)
}

#[tokio::test]
async fn law_5_milliseconds_are_rounded_up_and_a_client_that_waits_for_them_passes() {
    for micros in [1, 999, 1_000, 1_001, 99_999, 100_000, 100_001, 1_000_001, 60_000_000] {
        for algorithm in [Algorithm::SlidingWindowLog, Algorithm::FixedWindow, Algorithm::TokenBucket] {
            for style in [HeaderStyle::Draft11, HeaderStyle::XRateLimitDelta, HeaderStyle::OpenAi] {
                let (app, clock) = one_per(Duration::from_micros(micros), algorithm, style);
                // In the middle of a fixed window.
                clock.advance(Duration::from_micros(micros / 2));
                assert!(get_passes(&app, "/").await);
                let denied = get(&app, "/").await;
                let wait = denied.extensions.get::<Decision>().unwrap().retry_after().unwrap();
                let stated = millis(&denied).unwrap();
                assert_eq!(stated, (wait.as_micros() as u64).div_ceil(1_000), "{micros} us, {algorithm:?}, {style:?}");
                let seconds: u64 = denied.header("retry-after").unwrap().parse().unwrap();
                assert_eq!(seconds, stated.div_ceil(1_000), "both fields state the same wait");
                clock.advance(Duration::from_millis(stated));
                assert!(get_passes(&app, "/").await, "{micros} us, {algorithm:?}, {style:?}");
            }
        }
    }
}

#[tokio::test]
async fn milliseconds_are_off_by_default_except_in_the_style_of_openai() {
    for style in STYLES {
        for (writer, expected) in [
            (HeaderWriter::new(style), style == HeaderStyle::OpenAi),
            (HeaderWriter::new(style).with_retry_after_ms(true), true),
            (HeaderWriter::new(style).with_retry_after_ms(false), false),
        ] {
            let limit = RateLimitLayer::new(limiter_and_clock().0, per_minute(1), GlobalKey).with_headers(writer);
            let app = app(limit);
            assert!(millis(&get(&app, "/").await).is_none(), "{style:?}: an allowed response");
            assert_eq!(millis(&get(&app, "/").await).is_some(), expected, "{style:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_without_a_verdict_has_milliseconds_too() {
    let closed = RateLimitLayer::new(down_limiter(), per_minute(1), GlobalKey).fail_closed();
    let reply = get(&app(closed.with_headers(HeaderStyle::OpenAi)), "/").await;
    assert_eq!((reply.status, millis(&reply)), (StatusCode::SERVICE_UNAVAILABLE, Some(1_000)));
    assert_eq!(reply.header("retry-after").as_deref(), Some("1"));
}

#[tokio::test]
async fn jitter_makes_all_waits_longer_by_the_same_time() {
    let (limiter, clock) = limiter_and_clock();
    let writer = HeaderWriter::new(HeaderStyle::OpenAi).with_jitter(Duration::from_secs(10));
    let app = app(RateLimitLayer::new(limiter, per_minute(1), GlobalKey).with_headers(writer));
    assert!(get_passes(&app, "/").await);
    clock.advance(Duration::from_millis(29_500));
    for _ in 0..100 {
        let denied = get(&app, "/").await;
        let wait = millis(&denied).unwrap();
        assert!((30_500..=40_500).contains(&wait) && wait % 1_000 == 500, "{wait}");
        assert_eq!(denied.header("retry-after").unwrap(), wait.div_ceil(1_000).to_string());
        assert_eq!(denied.header("x-ratelimit-reset-requests").unwrap(), format!("{}.5s", wait / 1_000));
    }
}

/// The fields of `outer` are merged into a response that has `inner`.
fn merged(style: HeaderStyle, inner: &[(&'static str, &str)], outer: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in inner {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    let mut fields = HeaderFields::new(style);
    for (name, value) in outer {
        fields.push(name.parse().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    fields.apply(&mut headers);
    headers
}

/// Clients that know both fields obey the milliseconds alone.
#[test]
fn milliseconds_are_never_shorter_than_a_retry_after_that_is_kept() {
    let (seconds, in_millis) = ("retry-after", "retry-after-ms");
    for (inner, outer, expected) in [
        (&[(seconds, "30")][..], &[(seconds, "1"), (in_millis, "200")][..], ("30", "30000")),
        (&[(seconds, "1"), (in_millis, "200")], &[(seconds, "30")], ("30", "30000")),
        (&[(seconds, "1"), (in_millis, "200")], &[(seconds, "1"), (in_millis, "700")], ("1", "700")),
        (&[(seconds, "1"), (in_millis, "700")], &[(seconds, "1"), (in_millis, "200")], ("1", "700")),
        (&[(seconds, "2"), (in_millis, "1001")], &[(seconds, "1")], ("2", "1001")),
        (&[(in_millis, "soon")], &[(seconds, "3")], ("3", "3000")),
    ] {
        let headers = merged(HeaderStyle::Draft11, inner, outer);
        let value = |name: &str| headers.get_all(name).iter().map(|line| line.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!((value(seconds), value(in_millis)), (vec![expected.0], vec![expected.1]), "{inner:?} {outer:?}");
    }
    let own = [(seconds, "5"), (in_millis, "100")];
    let headers = merged(HeaderStyle::Draft11, &own, &[("ratelimit", r#""p";r=1;t=5"#)]);
    assert_eq!(headers[in_millis], "100", "an allowed response leaves the fields of the handler alone");
}

/// A gateway may pass the fields of its upstream on. Each unit keeps the stricter of both limits, as a whole.
#[test]
fn nested_limits_are_merged_unit_by_unit() {
    let limit = |unit: &str, limit: &str, remaining: &str, reset: &str| {
        [("limit", limit), ("remaining", remaining), ("reset", reset)]
            .map(|(what, value)| (&*format!("x-ratelimit-{what}-{unit}").leak(), value.to_owned()))
    };
    for (inner, outer, expected) in [
        (("60", "5", "1s"), ("10", "7", "6ms"), ("60", "5", "1s")),
        (("60", "5", "1s"), ("10", "5", "1s"), ("60", "5", "1s")),
        (("60", "5", "1s"), ("10", "4", "6ms"), ("10", "4", "6ms")),
        (("60", "5", "59.9s"), ("10", "5", "1m0s"), ("10", "5", "1m0s")),
        (("60", "5", "1h0m0s"), ("10", "5", "59m59.999s"), ("60", "5", "1h0m0s")),
        (("60", "many", "1h0m0s"), ("10", "5", "59m59.999s"), ("60", "many", "1h0m0s")),
    ] {
        let inner = limit("requests", inner.0, inner.1, inner.2);
        let both = [limit("requests", outer.0, outer.1, outer.2), limit("tokens", "100", "9", "2s")].concat();
        let pairs = |fields: &[(&'static str, String)]| -> Vec<(&'static str, String)> { fields.to_vec() };
        let as_refs = |fields: &[(&'static str, String)]| -> Vec<(&'static str, &'static str)> {
            pairs(fields).into_iter().map(|(name, value)| (name, &*value.leak())).collect()
        };
        let headers = merged(HeaderStyle::OpenAi, &as_refs(&inner), &as_refs(&both));
        let expected = [&limit("requests", expected.0, expected.1, expected.2)[..], &both[3..]].concat();
        assert_eq!(headers.len(), expected.len());
        for (name, value) in expected {
            assert_eq!(headers[name], value, "{name}");
        }
    }
}

#[test]
fn a_stricter_limit_with_the_reset_of_a_refusal_replaces_the_limit_of_the_refusal() {
    let [left, reset] = ["x-ratelimit-remaining", "x-ratelimit-reset"];
    let inner = [("retry-after", "30"), (left, "3"), (reset, "30")];
    let headers = merged(HeaderStyle::XRateLimitDelta, &inner, &[(left, "0"), (reset, "30")]);
    assert_eq!((headers[left].as_bytes(), headers[reset].as_bytes()), (&b"0"[..], &b"30"[..]));
}

#[test]
fn a_cache_control_that_a_response_has_is_kept() {
    let headers = merged(HeaderStyle::EnvoyCompat, &[("cache-control", "private")], &[("cache-control", "no-store")]);
    assert_eq!(headers.get_all("cache-control").iter().collect::<Vec<_>>(), ["private"]);
}
