//! Estimates of 0: a closure reads what the client sends, so no client makes its request free.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response, request};
use tollgate::{Policy, RateLimitLayer, Route, middleware::Bill, policy::HoldSettings, store::SettleAnswer::Settled};
use tower::{ServiceBuilder, ServiceExt};

use super::{Frames, Ledger, at_end, left, one_client, tokens, uploads};

/// An estimate that the client chooses.
fn max_tokens(parts: &request::Parts) -> u64 {
    parts.headers.get("max-tokens").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(100)
}

/// A model that writes 500 tokens, whatever was asked of it.
async fn model(request: Request<Body>) -> Result<Response<Frames>, Infallible> {
    request.extensions().get::<Bill>().expect("a bill").set_cost(500);
    Ok(Response::new(Frames::of(["a"])))
}

fn asks(path: &str, tokens: &str) -> Request<Body> {
    Request::get(path).header("max-tokens", tokens).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn law_14_an_estimate_of_zero_that_a_closure_returns_is_not_free() {
    let ledger = Ledger::default();
    let limit = RateLimitLayer::new(ledger.limiter(), tokens(), one_client()).with_cost_fn(max_tokens);
    let service = ServiceBuilder::new().layer(limit.with_settlement(at_end).with_held_body()).service_fn(model);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let response = service.clone().oneshot(asks("/", "0")).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429], "each of them costs 500 of 1 000");
    assert_eq!(ledger.settlements(), [(500, Settled); 2]);
}

/// Also under one policy of several, and for a slot beside it.
#[tokio::test]
async fn law_14_an_estimate_of_zero_under_one_of_several_policies_is_not_free() {
    let ledger = Ledger::default();
    let per_day = Policy::per_day("per-day", 5_000).unwrap().with_holds(HoldSettings::new());
    let limit = RateLimitLayer::new(ledger.limiter(), [tokens(), per_day.clone(), uploads()], one_client())
        .with_cost_of_fn("tokens", max_tokens)
        .with_cost_of_fn("uploads", max_tokens)
        .with_settlement(at_end)
        .with_held_body();
    let service = ServiceBuilder::new().layer(limit).service_fn(model);
    let response = service.clone().oneshot(asks("/", "0")).await.unwrap();
    let left_of = async |policy: &Policy| left(&ledger.limiter(), policy).await;
    assert_eq!((left_of(&tokens()).await, left_of(&per_day).await, left_of(&uploads()).await), (999, 4_999, 2));
    drop(response);
    assert_eq!((left_of(&tokens()).await, left_of(&per_day).await, left_of(&uploads()).await), (500, 4_500, 3));
}

/// A number is the decision of the service, so a route may cost nothing.
#[tokio::test]
async fn a_fixed_cost_of_zero_is_free() {
    let ledger = Ledger::default();
    let limit = RateLimitLayer::new(ledger.limiter(), tokens(), one_client())
        .with_cost_fn(max_tokens)
        .route("/list", Route::new().cost(0));
    let service = ServiceBuilder::new().layer(limit.with_settlement(at_end).with_held_body()).service_fn(model);
    drop(service.oneshot(asks("/list", "7")).await.unwrap());
    assert_eq!(ledger.settlements(), []);
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 1_000);
}
