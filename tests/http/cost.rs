//! What requests cost.

use axum::{Router, http::request::Parts};
use tollgate::{GlobalKey, Route};

use crate::{
    gate::{app, layer},
    support::http::{Reply, get, get_with},
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
