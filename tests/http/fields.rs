//! The fields on every response count down to the denial.

use std::time::Duration;

use axum::Router;
use tollgate::{GlobalKey, HeaderStyle, RateLimitLayer, headers::Writer};

use crate::{
    gate::{app, get_passes, layer, per_minute, timed},
    support::http::{Reply, get},
};

/// An application with 3 requests a minute, after one of them and 20 seconds.
async fn started(style: HeaderStyle) -> Router {
    let (limiter, clock) = timed();
    let app = app(RateLimitLayer::new(limiter, per_minute(3), GlobalKey).with_headers(style));
    assert!(get_passes(&app, "/").await);
    clock.advance(Duration::from_secs(20));
    app
}

/// The fields of a response that are about the limit, as `name: value`.
fn fields(reply: &Reply) -> Vec<String> {
    let mut names: Vec<&str> = reply.headers.keys().map(|name| name.as_str()).collect();
    names.retain(|name| name.contains("ratelimit"));
    names.sort_unstable();
    names.iter().map(|name| format!("{name}: {}", reply.header(name).unwrap())).collect()
}

/// The second, the third and a fourth request, which is denied.
async fn assert_fields(style: HeaderStyle, expected: [&[&str]; 3]) {
    let app = started(style).await;
    for (expected, status) in expected.into_iter().zip([200, 200, 429]) {
        let reply = get(&app, "/").await;
        assert_eq!(reply.status, status, "{style:?}");
        assert_eq!(fields(&reply), expected, "{style:?}");
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

/// The reset of an allowed response is when all is available again, that of a denial when to come back.
#[tokio::test]
async fn x_rate_limit_in_seconds_from_now_counts_down() {
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
async fn x_rate_limit_in_seconds_of_the_epoch_counts_down() {
    let limit = "x-ratelimit-limit: 3";
    // The clock began at 1767225600.
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

#[tokio::test]
async fn no_style_has_no_fields() {
    assert_fields(HeaderStyle::None, [&[], &[], &[]]).await;
}

#[tokio::test]
async fn a_writer_sets_the_details() {
    let strict = Writer::new(HeaderStyle::Draft11).list_all_on_denial(true);
    let hourly = tollgate::Policy::per_hour("hourly", 10).unwrap();
    let limit = layer(1, GlobalKey).and(hourly, GlobalKey).unwrap();
    for (limit, expected) in
        [(limit.clone(), r#""p";r=0;t=60"#), (limit.with_header_writer(strict), r#""p";r=0;t=60, "hourly";r=9;t=3600"#)]
    {
        let app = app(RateLimitLayer::clone(&limit));
        get(&app, "/").await;
        assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(expected));
    }
}
