//! Handlers that call the limiter themselves and respond with the denial.

use std::time::Duration;

use axum::http::{Method, request::Parts};
use axum::{Router, response::Response, routing::get as route};
use tollgate::rejection::{Denial, PlainText, Reason};
use tollgate::{
    Check, Decision, Error, ErrorKind, GlobalKey, HeaderStyle, Limiter, ManualClock, MemoryStore, Policy,
    RateLimitLayer, decision::Source, headers::HeaderWriter,
};

use crate::support::app::{app as limited, down_limiter, limiter, per_minute};
use crate::support::http::{Reply, get, request, send};

/// A handler that charges `cost` units of the policy "p".
fn app_with_handler_check(limiter: Limiter, policy: Policy, cost: u64) -> Router {
    let handler = move || async move {
        let decision = limiter.check("key", &policy, cost).await?;
        decision.clone().into_result()?;
        Ok::<_, Denial>(format!("{:?}", decision.available()))
    };
    Router::new().route("/", route(handler))
}

/// Asserts that the handler responds as the layer does.
fn assert_same_response(by_handler: &Reply, by_layer: &Reply) {
    assert_eq!(by_handler.status, by_layer.status);
    assert_eq!(by_handler.headers, by_layer.headers);
    assert_eq!(by_handler.body, by_layer.body);
    let reasons = [by_handler, by_layer].map(|reply| reply.extensions.get::<Denial>().unwrap().retry_after());
    assert_eq!(reasons[0], reasons[1]);
}

#[tokio::test]
async fn a_handlers_denial_is_the_same_response_as_the_layers() {
    let by_handler = app_with_handler_check(limiter(), per_minute(1), 1);
    assert_eq!(get(&by_handler, "/").await.text(), "Some(0)");
    let by_handler = get(&by_handler, "/").await;
    assert_eq!(by_handler.status, 429);
    assert_eq!(by_handler.header("retry-after").as_deref(), Some("60"));
    assert_eq!(by_handler.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60"#));
    assert_eq!(by_handler.header("cache-control").as_deref(), Some("no-store"));
    assert_eq!(by_handler.json()["violated-policies"], serde_json::json!(["p"]));
    assert!(!by_handler.extensions.get::<Decision>().unwrap().is_allowed());

    let by_layer = limited(RateLimitLayer::new(limiter(), per_minute(1), GlobalKey));
    get(&by_layer, "/").await;
    assert_same_response(&by_handler, &get(&by_layer, "/").await);
}

/// A job that propagates every error with `?`.
#[tokio::test]
async fn a_denial_is_an_error_that_names_the_policy_and_the_wait() {
    async fn job(limiter: &Limiter, cost: u64) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        limiter.check("alice", &per_minute(1), cost).await?.into_result()?;
        Ok(())
    }
    async fn handler(limiter: &Limiter) -> Result<(), Denial> {
        let twice = Check::new("alice", &per_minute(1), 1).and("alice", &per_minute(2), 1);
        limiter.check_all(twice).await?.into_result()?;
        Ok(())
    }
    let limiter = Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
    job(&limiter, 1).await.unwrap();
    assert_eq!(job(&limiter, 1).await.unwrap_err().to_string(), "rate limit exceeded: p; retry after 60s");
    let never_fits = job(&limiter, 2).await.unwrap_err().to_string();
    assert!(never_fits.starts_with("request refused: a cost of 2 can never pass"), "{never_fits}");
    let denial = handler(&limiter).await.unwrap_err();
    assert_eq!(denial.status(), 500);
    assert!(denial.to_string().contains("rename one"), "{denial}");
    assert!(std::error::Error::source(&denial).unwrap().is::<tollgate::ConfigError>());
}

#[tokio::test]
async fn law_10_a_store_error_in_a_handler_is_a_503_without_the_stores_text() {
    let by_handler = get(&app_with_handler_check(down_limiter(), per_minute(1), 1), "/").await;
    assert_eq!((by_handler.status.as_u16(), by_handler.header("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(by_handler.json()["type"], "about:blank");
    assert_eq!(by_handler.extensions.get::<Decision>().unwrap().source(), Source::Closed);
    assert!(!format!("{:?} {}", by_handler.headers, by_handler.text()).contains("SECRET"));

    let by_layer = limited(RateLimitLayer::new(down_limiter(), per_minute(1), GlobalKey).fail_closed());
    assert_same_response(&by_handler, &get(&by_layer, "/").await);
}

#[tokio::test]
async fn a_handlers_cost_above_the_limit_is_a_400_as_from_the_layer() {
    let by_handler = get(&app_with_handler_check(limiter(), per_minute(10), 11), "/").await;
    assert_eq!((by_handler.status.as_u16(), by_handler.header("retry-after")), (400, None));
    let cost = |_: &Parts| 11;
    let by_layer = limited(RateLimitLayer::new(limiter(), per_minute(10), GlobalKey).with_cost_fn(cost));
    assert_same_response(&by_handler, &get(&by_layer, "/").await);
}

#[tokio::test]
async fn a_handlers_denial_of_a_head_request_has_no_content() {
    let app = app_with_handler_check(limiter(), per_minute(1), 1);
    get(&app, "/").await;
    let head = send(&app, request(Method::HEAD, "/", &[])).await;
    assert_eq!((head.status.as_u16(), head.text()), (429, ""));
}

/// The layer allows the request and the handler is denied: outer layers read the denied decision.
#[tokio::test]
async fn a_handlers_denial_replaces_the_decision_of_the_layer_around_it() {
    let limiter = limiter();
    let around = RateLimitLayer::new(limiter.clone(), Policy::per_minute("around", 2).unwrap(), GlobalKey);
    let app = app_with_handler_check(limiter, per_minute(1), 1).layer(around.with_decision_in_response(true));
    get(&app, "/").await;
    let denied = get(&app, "/").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60, "around";r=0;t=60"#));
    assert_eq!(denied.extensions.get::<Decision>().unwrap().policies()[0].policy.name(), "p");
}

#[tokio::test]
async fn a_denial_is_rendered_with_any_rejection_and_header_style() {
    let policy = per_minute(1);
    let limiter = limiter();
    let _ = limiter.check("key", &policy, 1).await.unwrap();
    let denial = limiter.check("key", &policy, 1).await.unwrap().into_result().unwrap_err();
    assert_eq!(denial.reason(), Reason::QuotaExceeded);
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(60)));

    let (parts, ()) = axum::http::Request::new(()).into_parts();
    let response: Response =
        denial.respond(&PlainText::default(), &HeaderWriter::new(HeaderStyle::XRateLimitDelta), &parts);
    assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
    assert_eq!(response.headers()["retry-after"], "60");
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
}

#[test]
fn an_overload_in_a_handler_is_a_503_too() {
    let denial = Denial::from(Error::new(ErrorKind::Overloaded, "2 000 checks wait"));
    assert_eq!((denial.status().as_u16(), denial.retry_after()), (503, Some(Duration::from_secs(1))));
}
