//! What requests cost.

use axum::{Router, http::request::Parts};
use tollgate::{GlobalKey, Key, Policy, RateLimitLayer, Route};

use crate::support::{
    app::{app, layer, limiter},
    http::{Reply, get, get_with},
};

fn stated(parts: &Parts) -> u32 {
    let cost = parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok());
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
}

fn weighted(limit: u32) -> Router {
    app(layer(limit, GlobalKey).with_cost(stated).unwrap())
}

async fn costing(app: &Router, cost: &str) -> Reply {
    get_with(app, "/", &[("x-cost", cost)]).await
}

#[tokio::test]
async fn a_request_takes_what_it_costs() {
    let app = weighted(10);
    assert_eq!(costing(&app, "7").await.header("ratelimit").as_deref(), Some(r#""p";r=3;t=60"#));
    assert_eq!(costing(&app, "4").await.status, 429, "one unit more than there is");
    assert_eq!(costing(&app, "3").await.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60"#));
    assert_eq!(costing(&app, "1").await.status, 429);
}

#[tokio::test]
async fn a_cost_of_zero_charges_nothing_and_always_passes() {
    let app = weighted(1);
    assert_eq!(costing(&app, "0").await.header("ratelimit").as_deref(), Some(r#""p";r=1;t=60"#));
    assert_eq!(costing(&app, "1").await.status, 200);
    assert_eq!(costing(&app, "0").await.status, 200);
    assert_eq!(costing(&app, "1").await.status, 429);
}

#[tokio::test]
async fn a_computed_cost_above_the_limit_is_400_and_charges_nothing() {
    let app = weighted(10);
    for cost in ["11", "4294967295"] {
        let reply = costing(&app, cost).await;
        assert_eq!(reply.status, 400);
        assert_eq!(reply.header("retry-after"), None, "no wait helps");
        assert_eq!(reply.header("ratelimit"), None);
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
        let problem = reply.json();
        assert_eq!((&problem["type"], &problem["status"]), (&"about:blank".into(), &400.into()));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(cost) && detail.contains("10") && detail.contains("policy p"), "{detail}");
    }
    assert_eq!(costing(&app, "10").await.status, 200, "the whole budget is still there");
}

/// The second policy is the one that is too small; the first is not charged either.
#[tokio::test]
async fn a_computed_cost_above_any_of_the_limits_charges_none() {
    let small = tollgate::Policy::per_minute("small", 5).unwrap();
    let limit = layer(10, GlobalKey).and(small, GlobalKey).unwrap().with_cost(stated).unwrap();
    let app = app(limit);
    let reply = costing(&app, "6").await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("policy small"), "{}", reply.text());
    let reply = costing(&app, "1").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=9;t=60, "small";r=4;t=60"#));
}

#[tokio::test]
async fn a_route_may_compute_its_cost() {
    let app = app(layer(10, GlobalKey).route("/", Route::cost(stated)).unwrap());
    assert_eq!(costing(&app, "4").await.header("ratelimit").as_deref(), Some(r#""p";r=6;t=60"#));
    let other = get_with(&app, "/search", &[("x-cost", "4")]).await;
    assert_eq!(other.header("ratelimit").as_deref(), Some(r#""p";r=5;t=60"#));
}

/// The cost was right when it was set; the policy came later.
#[tokio::test]
async fn a_fixed_cost_above_a_later_limit_is_400_when_it_occurs() {
    let small = tollgate::Policy::per_minute("small", 5).unwrap();
    let app = app(layer(10, GlobalKey).with_cost(6).unwrap().with_policy(small));
    let reply = get(&app, "/").await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("policy small"), "{}", reply.text());
}

fn named(name: &str, limit: u32) -> Policy {
    Policy::per_minute(name, limit).unwrap()
}

/// One unit of `requests` and the stated cost of `tokens`.
fn requests_and_tokens(requests: u32, tokens: u32) -> RateLimitLayer<GlobalKey> {
    let policies = [named("requests", requests), named("tokens", tokens)];
    RateLimitLayer::new(limiter(), policies, GlobalKey).with_cost_of("tokens", stated).unwrap()
}

#[tokio::test]
async fn law_3_a_request_owes_each_policy_its_own_cost_together_or_not_at_all() {
    let app = app(requests_and_tokens(3, 100));
    let reply = costing(&app, "50").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""requests";r=2;t=60, "tokens";r=50;t=60"#));
    let denied = costing(&app, "51").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["tokens"]));
    let reply = costing(&app, "50").await;
    assert_eq!(
        reply.header("ratelimit").as_deref(),
        Some(r#""requests";r=1;t=60, "tokens";r=0;t=60"#),
        "the denied request has taken nothing from either"
    );
    assert_eq!(costing(&app, "1").await.status, 429, "no token is left");
    let free = costing(&app, "0").await;
    assert_eq!(free.header("ratelimit").as_deref(), Some(r#""requests";r=0;t=60, "tokens";r=0;t=60"#));
    let spent = costing(&app, "0").await;
    assert_eq!(
        spent.json()["violated-policies"],
        serde_json::json!(["requests"]),
        "0 under one policy frees of no other"
    );
}

#[tokio::test]
async fn each_subject_has_a_cost_of_its_own() {
    let limit = layer(10, GlobalKey).and(named("tenant", 1_000), |_: &Parts| Key::from("tenant")).unwrap();
    let app = app(limit.with_cost(2).unwrap().with_cost_of("tenant", 300).unwrap());
    assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=8;t=60, "tenant";r=700;t=60"#));
}

#[tokio::test]
async fn a_routes_cost_of_a_policy_comes_before_the_layers_and_a_plain_cost_after_both() {
    let limit = requests_and_tokens(50, 1_000)
        .route("/search", Route::cost(10))
        .and_then(|limit| limit.route("/login", Route::cost(10).with_cost_of("TOKENS", 7)))
        .and_then(|limit| limit.route("/users/{id}", Route::policy(named("users", 9)).with_cost_of("users", 4)));
    let app = app(limit.unwrap());
    let left = async |path| get_with(&app, path, &[("x-cost", "100")]).await.header("ratelimit").unwrap();
    assert_eq!(left("/search").await, r#""requests";r=40;t=60, "tokens";r=900;t=60"#);
    assert_eq!(left("/login").await, r#""requests";r=30;t=60, "tokens";r=893;t=60"#);
    assert_eq!(left("/users/1").await, r#""users";r=5;t=60"#);
}

#[tokio::test]
async fn a_computed_cost_of_a_policy_above_its_limit_is_400_and_charges_neither() {
    let app = app(requests_and_tokens(3, 100));
    let reply = costing(&app, "101").await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("101") && reply.text().contains("policy tokens"), "{}", reply.text());
    let reply = costing(&app, "100").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""requests";r=2;t=60, "tokens";r=0;t=60"#));
}

#[tokio::test]
async fn policies_that_are_chosen_for_a_request_are_charged_by_their_names() {
    let plan = |_: &Parts, _: &Key| [named("requests", 10), named("tokens", 100)];
    let app = app(RateLimitLayer::new(limiter(), plan, GlobalKey).with_cost_of("tokens", 30).unwrap());
    let reply = get(&app, "/").await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""requests";r=9;t=60, "tokens";r=70;t=60"#));
}
