//! Several layers around one handler, and handlers with fields of their own.

use axum::{Router, http::StatusCode, routing::get};
use tollgate::{GlobalKey, HeaderStyle, Limiter, Policy, RateLimitLayer};

use crate::{
    gate::{layer, limiter},
    support::http::get as fetch,
};

fn named(limiter: &Limiter, name: &str, limit: u32) -> RateLimitLayer<GlobalKey> {
    RateLimitLayer::new(limiter.clone(), Policy::per_minute(name, limit).unwrap(), GlobalKey)
}

fn stack(inner: u32, outer: u32, style: HeaderStyle) -> Router {
    let limiter = limiter();
    let [inner, outer] = [("inner", inner), ("outer", outer)].map(|(name, limit)| named(&limiter, name, limit));
    Router::new().route("/", get(|| async {})).layer(inner.with_headers(style)).layer(outer.with_headers(style))
}

#[tokio::test]
async fn lists_of_stacked_layers_are_joined() {
    let app = stack(1, 3, HeaderStyle::Draft11);
    let reply = fetch(&app, "/").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""inner";r=0;t=60, "outer";r=2;t=60"#));
    assert_eq!(reply.header("ratelimit-policy").as_deref(), Some(r#""inner";q=1;w=60, "outer";q=3;w=60"#));
    let denied = fetch(&app, "/").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("ratelimit").as_deref(), Some(r#""inner";r=0;t=60, "outer";r=1;t=60"#));
    assert_eq!(denied.header("retry-after").as_deref(), Some("60"), "the inner layer's stays");
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["inner"]));
}

#[tokio::test]
async fn of_single_values_the_stricter_layer_is_told() {
    for (inner, outer) in [(2, 5), (5, 2)] {
        let reply = fetch(&stack(inner, outer, HeaderStyle::XRateLimitDelta), "/").await;
        assert_eq!(reply.header("x-ratelimit-limit").as_deref(), Some("2"));
        assert_eq!(reply.header("x-ratelimit-remaining").as_deref(), Some("1"));
        assert_eq!(reply.header("x-ratelimit-reset").as_deref(), Some("60"));
        let reply = fetch(&stack(inner, outer, HeaderStyle::Draft06), "/").await;
        assert_eq!(reply.header("ratelimit-limit").as_deref(), Some("2"));
        assert_eq!(reply.header("ratelimit-remaining").as_deref(), Some("1"));
        let reply = fetch(&stack(inner, outer, HeaderStyle::Draft07), "/").await;
        assert_eq!(reply.header("ratelimit").as_deref(), Some("limit=2, remaining=1, reset=60"));
    }
}

#[tokio::test]
async fn a_request_that_the_outer_layer_denies_is_free_at_the_inner_one() {
    let (limiter, policy) = (limiter(), Policy::per_minute("inner", 5).unwrap());
    let tenant = |_: &axum::http::request::Parts| tollgate::Key::from("a");
    let inner = RateLimitLayer::new(limiter.clone(), policy.clone(), tenant);
    let app = Router::new().route("/", get(|| async {})).layer(inner).layer(named(&limiter, "outer", 1));
    for status in [200, 429, 429] {
        assert_eq!(fetch(&app, "/").await.status, status);
    }
    assert_eq!(limiter.peek("a", &policy).await.unwrap().available(), Some(4));
}

#[tokio::test]
async fn a_handlers_own_retry_after_stays() {
    for value in ["120", "Fri, 31 Dec 1999 23:59:59 GMT"] {
        let busy = move || async move { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", value)], "maintenance") };
        let app = Router::new().route("/", get(busy)).layer(layer(5, GlobalKey));
        let reply = fetch(&app, "/").await;
        assert_eq!((reply.status.as_u16(), reply.text()), (503, "maintenance"));
        assert_eq!(reply.header("retry-after").as_deref(), Some(value));
        assert_eq!(reply.header("cache-control"), None);
        assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=4;t=60"#), "it was let through, and has paid");
    }
}
