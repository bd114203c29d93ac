//! The rate limit headers of every style, from the first response to the denial.

use std::time::Duration;

use axum::{Router, http::HeaderName};
use tollgate::{Algorithm, GlobalKey, HeaderStyle, RateLimitLayer, headers::HeaderWriter};
use tower_http::cors::{Any, CorsLayer};

use crate::support::app::{app, get_passes, layer, limiter_and_clock, per_minute};
use crate::support::http::{Reply, get, get_with};

/// All styles but `Hidden`, which tells nothing.
pub(crate) const STYLES: [HeaderStyle; 10] = [
    HeaderStyle::Draft03,
    HeaderStyle::Draft06,
    HeaderStyle::Draft07,
    HeaderStyle::Draft11,
    HeaderStyle::EnvoyCompat,
    HeaderStyle::None,
    HeaderStyle::OpenAi,
    HeaderStyle::TowerGovernorCompat,
    HeaderStyle::XRateLimitDelta,
    HeaderStyle::XRateLimitEpoch,
];

pub(super) const PAGE: &str = include_str!("../../docs/what-clients-see.md");

/// An app with 3 requests a minute, 20 seconds after the first request.
async fn started(style: HeaderStyle) -> Router {
    let (limiter, clock) = limiter_and_clock();
    let app = app(RateLimitLayer::new(limiter, per_minute(3), GlobalKey).with_headers(style));
    assert!(get_passes(&app, "/").await);
    clock.advance(Duration::from_secs(20));
    app
}

/// The rate limit headers of a response, as `name: value`.
pub(super) fn fields(reply: &Reply) -> Vec<String> {
    let mut names: Vec<&str> = reply.headers.keys().map(|name| name.as_str()).collect();
    names.retain(|name| name.contains("ratelimit"));
    names.sort_unstable();
    names.iter().map(|name| format!("{name}: {}", reply.header(name).unwrap())).collect()
}

/// Asserts the headers of the second, third and fourth request; the last is denied. The page for users lists them too.
async fn assert_fields(style: HeaderStyle, expected: [&[&str]; 3]) {
    let app = started(style).await;
    for (expected, status) in expected.into_iter().zip([200, 200, 429]) {
        let reply = get(&app, "/").await;
        assert_eq!(reply.status, status, "{style:?}");
        assert_eq!(fields(&reply), expected, "{style:?}");
        for field in expected {
            assert!(PAGE.contains(&format!("`{field}`")), "{style:?}: the page lacks {field}");
        }
        assert_eq!(reply.headers.contains_key("retry-after"), status == 429, "{style:?}");
    }
}

#[tokio::test]
async fn draft_11_counts_down() {
    let policy = r#"ratelimit-policy: "p";q=3;w=60"#;
    assert_fields(
        HeaderStyle::Draft11,
        [
            &[r#"ratelimit: "p";r=1;t=40"#, policy],
            &[r#"ratelimit: "p";r=0;t=40"#, policy],
            &[r#"ratelimit: "p";r=0;t=40"#, policy],
        ],
    )
    .await;
}

#[tokio::test]
async fn draft_07_counts_down() {
    let policy = "ratelimit-policy: 3;w=60";
    assert_fields(
        HeaderStyle::Draft07,
        [
            &["ratelimit: limit=3, remaining=1, reset=40", policy],
            &["ratelimit: limit=3, remaining=0, reset=40", policy],
            &["ratelimit: limit=3, remaining=0, reset=40", policy],
        ],
    )
    .await;
}

#[tokio::test]
async fn draft_06_counts_down() {
    let (limit, policy, reset) = ("ratelimit-limit: 3", "ratelimit-policy: 3;w=60", "ratelimit-reset: 40");
    assert_fields(
        HeaderStyle::Draft06,
        [
            &[limit, policy, "ratelimit-remaining: 1", reset],
            &[limit, policy, "ratelimit-remaining: 0", reset],
            &[limit, policy, "ratelimit-remaining: 0", reset],
        ],
    )
    .await;
}

#[tokio::test]
async fn draft_03_counts_down() {
    let (limit, reset) = ("ratelimit-limit: 3, 3;w=60", "ratelimit-reset: 40");
    assert_fields(
        HeaderStyle::Draft03,
        [
            &[limit, "ratelimit-remaining: 1", reset],
            &[limit, "ratelimit-remaining: 0", reset],
            &[limit, "ratelimit-remaining: 0", reset],
        ],
    )
    .await;
}

/// Envoy sidecars do not retry responses with `x-envoy-ratelimited`.
#[tokio::test]
async fn envoy_compat_counts_down() {
    let limit = r#"x-ratelimit-limit: 3, 3;w=60;name="p""#;
    assert_fields(
        HeaderStyle::EnvoyCompat,
        [
            &[limit, "x-ratelimit-remaining: 1", "x-ratelimit-reset: 60"],
            &[limit, "x-ratelimit-remaining: 0", "x-ratelimit-reset: 60"],
            &["x-envoy-ratelimited: true", limit, "x-ratelimit-remaining: 0", "x-ratelimit-reset: 40"],
        ],
    )
    .await;
}

#[tokio::test]
async fn tower_governor_compat_counts_down() {
    let limit = "x-ratelimit-limit: 3";
    assert_fields(
        HeaderStyle::TowerGovernorCompat,
        [
            &[limit, "x-ratelimit-remaining: 1"],
            &[limit, "x-ratelimit-remaining: 0"],
            &["x-ratelimit-after: 40", limit, "x-ratelimit-remaining: 0"],
        ],
    )
    .await;
}

/// `HeaderStyle::names`, the list for CORS, contains exactly the headers that the style sends.
#[tokio::test]
async fn the_names_of_a_style_are_the_headers_that_it_sends() {
    for style in STYLES.into_iter().chain([HeaderStyle::Hidden]) {
        let tokens = tollgate::Policy::per_minute("tokens", 30).unwrap().with_unit("tokens");
        let limit = RateLimitLayer::new(limiter_and_clock().0, [per_minute(2), tokens], GlobalKey);
        let app = app(limit.with_headers(style));
        let mut sent = std::collections::HashSet::new();
        for _ in 0..3 {
            sent.extend(get(&app, "/").await.headers.into_iter().filter_map(|(name, _)| name));
        }
        sent.retain(|name: &HeaderName| {
            name.as_str().contains("ratelimit") || name.as_str().starts_with("retry-after")
        });
        let names: Vec<_> = style.names().iter().collect();
        assert_eq!(names.len(), sent.len(), "{style:?}: {sent:?}");
        assert!(names.iter().all(|name| sent.contains(*name)), "{style:?}: {sent:?}");
    }
}

/// Scripts of another origin can read the headers, also those of refusals, behind a CORS layer that exposes them.
#[tokio::test]
async fn an_outer_cors_layer_exposes_the_headers() {
    let cors = CorsLayer::new().allow_origin(Any).expose_headers(HeaderStyle::Draft11.names().to_vec());
    let app = app(layer(1, GlobalKey)).layer(cors);
    for status in [200, 429] {
        let reply = get_with(&app, "/", &[("origin", "https://example.com")]).await;
        assert_eq!(reply.status, status);
        let exposed = reply.header("access-control-expose-headers");
        assert_eq!(exposed.as_deref(), Some("retry-after,ratelimit,ratelimit-policy"));
    }
}

/// The reset of an allowed response is the time until the whole limit is available, that of a denial is Retry-After.
#[tokio::test]
async fn x_rate_limit_delta_counts_down() {
    let limit = "x-ratelimit-limit: 3";
    assert_fields(
        HeaderStyle::XRateLimitDelta,
        [
            &[limit, "x-ratelimit-remaining: 1", "x-ratelimit-reset: 60"],
            &[limit, "x-ratelimit-remaining: 0", "x-ratelimit-reset: 60"],
            &[limit, "x-ratelimit-remaining: 0", "x-ratelimit-reset: 40"],
        ],
    )
    .await;
}

#[tokio::test]
async fn x_rate_limit_epoch_counts_down() {
    let limit = "x-ratelimit-limit: 3";
    // The clock starts at 1767225600.
    assert_fields(
        HeaderStyle::XRateLimitEpoch,
        [
            &[limit, "x-ratelimit-remaining: 1", "x-ratelimit-reset: 1767225680"],
            &[limit, "x-ratelimit-remaining: 0", "x-ratelimit-reset: 1767225680"],
            &[limit, "x-ratelimit-remaining: 0", "x-ratelimit-reset: 1767225660"],
        ],
    )
    .await;
}

/// The remaining units count down from the burst, so a limit of 10 beside 99 remaining units would be a contradiction.
#[tokio::test]
async fn a_burst_is_the_limit_in_all_styles_that_have_one() {
    let policies = "ratelimit-policy: 10;w=60;burst=100";
    for (style, expected) in [
        (HeaderStyle::Draft11, &[r#"ratelimit: "p";r=10;t=60"#, r#"ratelimit-policy: "p";q=10;w=60"#][..]),
        (HeaderStyle::Draft07, &["ratelimit: limit=100, remaining=99, reset=594", policies]),
        (HeaderStyle::Draft06, &["ratelimit-limit: 100", policies, "ratelimit-remaining: 99", "ratelimit-reset: 594"]),
        (
            HeaderStyle::Draft03,
            &["ratelimit-limit: 100, 10;w=60;burst=100", "ratelimit-remaining: 99", "ratelimit-reset: 594"],
        ),
        (
            HeaderStyle::EnvoyCompat,
            &[r#"x-ratelimit-limit: 100, 10;w=60;name="p""#, "x-ratelimit-remaining: 99", "x-ratelimit-reset: 6"],
        ),
        (HeaderStyle::TowerGovernorCompat, &["x-ratelimit-limit: 100", "x-ratelimit-remaining: 99"]),
        (
            HeaderStyle::XRateLimitDelta,
            &["x-ratelimit-limit: 100", "x-ratelimit-remaining: 99", "x-ratelimit-reset: 6"],
        ),
        (
            HeaderStyle::XRateLimitEpoch,
            &["x-ratelimit-limit: 100", "x-ratelimit-remaining: 99", "x-ratelimit-reset: 1767225606"],
        ),
    ] {
        let bucket = per_minute(10).with_algorithm(Algorithm::TokenBucket).with_burst(100);
        let app = app(RateLimitLayer::new(limiter_and_clock().0, bucket, GlobalKey).with_headers(style));
        assert_eq!(fields(&get(&app, "/").await), expected, "{style:?}");
    }
}

/// Several policies have another code path than one.
#[tokio::test]
async fn the_remaining_units_are_at_most_the_quota() {
    let bucket = per_minute(10).with_algorithm(Algorithm::TokenBucket).with_burst(100);
    let small = tollgate::Policy::per_minute("q", 10).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(4);
    let app = app(RateLimitLayer::new(limiter_and_clock().0, [bucket, small], GlobalKey));
    let reply = get(&app, "/").await;
    assert_eq!(reply.header("ratelimit-policy").unwrap(), r#""p";q=10;w=60, "q";q=10;w=60"#);
    assert_eq!(reply.header("ratelimit").unwrap(), r#""p";r=10;t=60, "q";r=3;t=18"#);
}

#[tokio::test]
async fn style_none_has_no_headers() {
    assert_fields(HeaderStyle::None, [&[], &[], &[]]).await;
}

#[tokio::test]
async fn a_writer_sets_the_details() {
    let strict = HeaderWriter::new(HeaderStyle::Draft11).with_all_policies_on_denial(true);
    let hourly = tollgate::Policy::per_hour("hourly", 10).unwrap();
    let limit = layer(1, GlobalKey).and(hourly, GlobalKey);
    for (limit, expected) in
        [(limit.clone(), r#""p";r=0;t=60"#), (limit.with_headers(strict), r#""p";r=0;t=60, "hourly";r=9;t=3600"#)]
    {
        let app = app(RateLimitLayer::clone(&limit));
        get(&app, "/").await;
        assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(expected));
    }
}

/// Units times microseconds have more than 64 bits.
#[tokio::test]
async fn a_very_large_limit_has_the_pace_of_its_policy_too() {
    let bucket = tollgate::Policy::per_day("p", 1_000_000_000).unwrap().with_algorithm(Algorithm::TokenBucket);
    let limit = RateLimitLayer::new(limiter_and_clock().0, bucket, GlobalKey).with_cost(100_000_000);
    let reply = get(&app(limit), "/").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=900000000;t=77760"#));
}
