//! The cost of requests: fixed, computed, by policy and by route.

use axum::{Router, http::request::Parts};
use tollgate::{GlobalKey, Key, Policy, RateLimitLayer, Route};

use crate::support::app::{app, layer, limiter};
use crate::support::http::{Reply, get, get_with};

/// The cost in the header `x-cost`; 1 without it.
fn cost_header(parts: &Parts) -> u64 {
    let cost = parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok());
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
}

fn app_with_cost_header(limit: u64) -> Router {
    app(layer(limit, GlobalKey).with_cost_fn(cost_header))
}

async fn get_with_cost(app: &Router, cost: &str) -> Reply {
    get_with(app, "/", &[("x-cost", cost)]).await
}

#[tokio::test]
async fn a_request_is_charged_its_cost() {
    let app = app_with_cost_header(10);
    assert_eq!(get_with_cost(&app, "7").await.header("ratelimit").as_deref(), Some(r#""p";r=3;t=60"#));
    assert_eq!(get_with_cost(&app, "4").await.status, 429, "one unit more than is available");
    assert_eq!(get_with_cost(&app, "3").await.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60"#));
    assert_eq!(get_with_cost(&app, "1").await.status, 429);
}

#[tokio::test]
async fn a_cost_of_zero_charges_nothing_and_always_passes() {
    let app = app_with_cost_header(1);
    assert_eq!(get_with_cost(&app, "0").await.header("ratelimit").as_deref(), Some(r#""p";r=1;t=60"#));
    assert_eq!(get_with_cost(&app, "1").await.status, 200);
    assert_eq!(get_with_cost(&app, "0").await.status, 200);
    assert_eq!(get_with_cost(&app, "1").await.status, 429);
}

#[tokio::test]
async fn a_computed_cost_above_the_limit_is_400_and_charges_nothing() {
    let app = app_with_cost_header(10);
    for cost in ["11", "4294967296", "18446744073709551615"] {
        let reply = get_with_cost(&app, cost).await;
        assert_eq!(reply.status, 400);
        assert_eq!(reply.header("retry-after"), None, "the request can never pass");
        assert_eq!(reply.header("ratelimit"), None);
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
        let problem = reply.json();
        assert_eq!((&problem["type"], &problem["status"]), (&"about:blank".into(), &400.into()));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(cost) && detail.contains("10") && detail.contains("policy p"), "{detail}");
    }
    assert_eq!(get_with_cost(&app, "10").await.status, 200, "nothing was charged");
}

/// The second limit is too small, and the first policy is not charged either.
#[tokio::test]
async fn a_computed_cost_above_any_of_the_limits_charges_none() {
    let small = tollgate::Policy::per_minute("small", 5).unwrap();
    let limit = layer(10, GlobalKey).and(small, GlobalKey).with_cost_fn(cost_header);
    let app = app(limit);
    let reply = get_with_cost(&app, "6").await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("policy small"), "{}", reply.text());
    let reply = get_with_cost(&app, "1").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=9;t=60, "small";r=4;t=60"#));
}

#[tokio::test]
async fn a_route_may_compute_its_cost() {
    let app = app(layer(10, GlobalKey).route("/", Route::new().cost_fn(cost_header)));
    assert_eq!(get_with_cost(&app, "4").await.header("ratelimit").as_deref(), Some(r#""p";r=6;t=60"#));
    let other = get_with(&app, "/search", &[("x-cost", "4")]).await;
    assert_eq!(other.header("ratelimit").as_deref(), Some(r#""p";r=5;t=60"#));
}

/// No client can avoid it, so it is no fault of a client: also if the cost was valid when it was set.
#[tokio::test]
async fn a_fixed_cost_above_a_limit_that_is_set_later_is_500() {
    let small = tollgate::Policy::per_minute("small", 5).unwrap();
    let app = app(layer(10, GlobalKey).with_cost(6).with_policies(small));
    let reply = get(&app, "/").await;
    assert_eq!(reply.status, 500);
    assert!(reply.text().contains("a cost of 6 can never pass policy"), "{}", reply.text());
}

fn policy(name: &str, limit: u64) -> Policy {
    Policy::per_minute(name, limit).unwrap()
}

/// Charges one unit of `requests` and the cost in the header to `tokens`.
fn requests_and_tokens(requests: u64, tokens: u64) -> RateLimitLayer<GlobalKey> {
    let policies = [policy("requests", requests), policy("tokens", tokens)];
    RateLimitLayer::new(limiter(), policies, GlobalKey).with_cost_of_fn("tokens", cost_header)
}

#[tokio::test]
async fn law_3_a_request_is_charged_a_cost_for_each_policy_or_nothing() {
    let app = app(requests_and_tokens(3, 100));
    let reply = get_with_cost(&app, "50").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""requests";r=2;t=60, "tokens";r=50;t=60"#));
    let denied = get_with_cost(&app, "51").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["tokens"]));
    let reply = get_with_cost(&app, "50").await;
    assert_eq!(
        reply.header("ratelimit").as_deref(),
        Some(r#""requests";r=1;t=60, "tokens";r=0;t=60"#),
        "the denied request was charged under neither policy"
    );
    assert_eq!(get_with_cost(&app, "1").await.status, 429, "no token is left");
    let free = get_with_cost(&app, "0").await;
    assert_eq!(free.header("ratelimit").as_deref(), Some(r#""requests";r=0;t=60, "tokens";r=0;t=60"#));
    let spent = get_with_cost(&app, "0").await;
    assert_eq!(
        spent.json()["violated-policies"],
        serde_json::json!(["requests"]),
        "a cost of 0 under one policy leaves the cost under the other"
    );
}

#[tokio::test]
async fn each_subject_has_its_own_cost() {
    let limit = layer(10, GlobalKey).and(policy("tenant", 1_000), |_: &Parts| Key::from("tenant"));
    let app = app(limit.with_cost(2).with_cost_of("tenant", 300));
    assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=8;t=60, "tenant";r=700;t=60"#));
}

#[tokio::test]
async fn a_routes_cost_of_a_policy_precedes_the_layers_and_both_precede_a_plain_cost() {
    let limit = requests_and_tokens(50, 1_000)
        .route("/search", Route::new().cost(10))
        .route("/login", Route::new().cost(10).cost_of("TOKENS", 7))
        .route("/users/{id}", Route::new().policies(policy("users", 9)).cost_of("users", 4));
    let app = app(limit);
    let remaining = async |path| get_with(&app, path, &[("x-cost", "100")]).await.header("ratelimit").unwrap();
    assert_eq!(remaining("/search").await, r#""requests";r=40;t=60, "tokens";r=900;t=60"#);
    assert_eq!(remaining("/login").await, r#""requests";r=30;t=60, "tokens";r=893;t=60"#);
    assert_eq!(remaining("/users/1").await, r#""users";r=5;t=60"#);
}

#[tokio::test]
async fn a_computed_cost_of_a_policy_above_its_limit_is_400_and_charges_neither() {
    let app = app(requests_and_tokens(3, 100));
    let reply = get_with_cost(&app, "101").await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("101") && reply.text().contains("policy tokens"), "{}", reply.text());
    let reply = get_with_cost(&app, "100").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""requests";r=2;t=60, "tokens";r=0;t=60"#));
}

#[tokio::test]
async fn policies_that_are_chosen_for_a_request_are_charged_by_their_names() {
    let plan = |_: &Parts, _: &Key| [policy("requests", 10), policy("tokens", 100)];
    let app = app(RateLimitLayer::new(limiter(), plan, GlobalKey).with_cost_of("tokens", 30));
    let reply = get(&app, "/").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""requests";r=9;t=60, "tokens";r=70;t=60"#));
}
