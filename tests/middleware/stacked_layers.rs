//! Rate limit headers of several layers around one handler, and of handlers that set their own.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use axum::{Router, response::IntoResponse, routing::get};
use tollgate::{GlobalKey, HeaderStyle, Limiter, Policy, RateLimitLayer};

use crate::support::app::{layer, limiter};
use crate::support::http::get as fetch;

fn named(limiter: &Limiter, name: &str, limit: u64) -> RateLimitLayer<GlobalKey> {
    RateLimitLayer::new(limiter.clone(), Policy::per_minute(name, limit).unwrap(), GlobalKey)
}

fn stack(inner: u64, outer: u64, style: HeaderStyle) -> Router {
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
    assert_eq!(denied.header("retry-after").as_deref(), Some("60"), "the value of the inner layer stays");
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["inner"]));
}

#[tokio::test]
async fn single_valued_headers_have_the_values_of_the_stricter_layer() {
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

/// With equal remaining units, the layer with the later reset is stricter.
#[tokio::test]
async fn single_valued_headers_have_the_later_reset_if_the_remaining_units_are_equal() {
    for (style, name, reset) in [
        (HeaderStyle::Draft03, "ratelimit-reset", "3600"),
        (HeaderStyle::Draft06, "ratelimit-reset", "3600"),
        (HeaderStyle::EnvoyCompat, "x-ratelimit-reset", "3600"),
        (HeaderStyle::XRateLimitDelta, "x-ratelimit-reset", "3600"),
        (HeaderStyle::XRateLimitEpoch, "x-ratelimit-reset", "1767229200"),
    ] {
        for (inner, outer) in [(10, 3_600), (3_600, 10)] {
            let limiter = limiter();
            let limit = |name: &str, seconds| {
                let policy = Policy::new(name, 5, Duration::from_secs(seconds)).unwrap();
                RateLimitLayer::new(limiter.clone(), policy, GlobalKey).with_headers(style)
            };
            let app = Router::new().route("/", get(|| async {}));
            let app = app.layer(limit("inner", inner)).layer(limit("outer", outer));
            assert_eq!(fetch(&app, "/").await.header(name).as_deref(), Some(reset), "{style:?}");
        }
    }
}

/// An app whose handler responds with 429 and the given headers.
fn refusing(names: &'static [(&'static str, &'static str)]) -> Router {
    let refusal = move || async move {
        let mut response = StatusCode::TOO_MANY_REQUESTS.into_response();
        for (name, value) in names {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        response
    };
    Router::new().route("/", get(refusal))
}

/// The handler says 30 seconds, and the layer has fewer remaining units.
#[tokio::test]
async fn the_reset_of_an_inner_refusal_is_not_replaced_by_an_earlier_one() {
    let app = refusing(&[
        ("retry-after", "30"),
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", "3"),
        ("x-ratelimit-reset", "30"),
    ]);
    let second = Policy::per_second("p", 1).unwrap();
    let limit = RateLimitLayer::new(limiter(), second, GlobalKey).with_headers(HeaderStyle::XRateLimitDelta);
    let reply = fetch(&app.layer(limit), "/").await;
    for (name, value) in [("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "30"), ("retry-after", "30")] {
        assert_eq!(reply.header(name).as_deref(), Some(value));
    }
}

/// Headers that cannot be parsed may be stricter, and a mixture of both groups would be meaningless.
#[tokio::test]
async fn headers_that_cannot_be_parsed_stay_as_a_group() {
    for (style, names) in [
        (HeaderStyle::XRateLimitDelta, &[("x-ratelimit-remaining", "few")][..]),
        (HeaderStyle::Draft06, &[("ratelimit-limit", "5")]),
        (HeaderStyle::Draft07, &[("ratelimit", r#""inner";r=0;t=30"#)]),
    ] {
        let reply = fetch(&refusing(names).layer(layer(5, GlobalKey).with_headers(style)), "/").await;
        for name in style.names().iter().filter(|name| *name != "ratelimit-policy") {
            let existing = names.iter().find(|(other, _)| name == other).map(|(_, value)| *value);
            assert_eq!(reply.header(name.as_str()).as_deref(), existing, "{style:?}");
        }
    }
}

/// Draft 07 allows whitespace, any order and additional members.
#[tokio::test]
async fn a_draft_07_header_is_parsed_as_a_dictionary() {
    for (inner, stays) in [
        ("reset=9,remaining=3 , limit=10", true),
        ("limit=10, x-remaining=9, remaining=3;note=1", true),
        ("remaining=5, limit=10, reset=9", false),
    ] {
        let names: &'static [_] = Vec::leak(vec![("ratelimit", inner)]);
        let limit = layer(5, GlobalKey).with_headers(HeaderStyle::Draft07);
        let reply = fetch(&refusing(names).layer(limit), "/").await;
        let expected = if stays { inner } else { "limit=5, remaining=4, reset=60" };
        assert_eq!(reply.header("ratelimit").as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn a_request_that_the_outer_layer_denies_is_not_charged_by_the_inner_layer() {
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
        assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=4;t=60"#), "the request passed and is charged");
    }
}
