//! Several policies at once, and policies that are chosen for each request.

use std::time::Duration;

use axum::{Extension, http::request::Parts};
use tollgate::{GlobalKey, Key, Policy, RateLimitLayer, Route};

use crate::support::app::{app, get_passes, limiter, limiter_and_clock};
use crate::support::http::{get, get_with};

#[tokio::test]
async fn a_request_needs_units_under_all_policies() {
    let (limiter, clock) = limiter_and_clock();
    let policies = [Policy::per_second("burst", 2).unwrap(), Policy::per_minute("steady", 3).unwrap()];
    let app = app(RateLimitLayer::new(limiter, policies, GlobalKey));
    assert!(get_passes(&app, "/").await);
    assert!(get_passes(&app, "/").await);
    let denied = get(&app, "/").await;
    assert_eq!(denied.header("retry-after").as_deref(), Some("1"));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["burst"]));
    clock.advance(Duration::from_secs(1));
    assert!(get_passes(&app, "/").await);
    let denied = get(&app, "/").await;
    assert_eq!(denied.header("retry-after").as_deref(), Some("59"));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["steady"]));
}

/// Retry-After is the longest wait of the violated policies.
#[tokio::test]
async fn a_denial_names_every_policy_that_is_violated() {
    let policies = vec![Policy::per_second("burst", 1).unwrap(), Policy::per_minute("steady", 1).unwrap()];
    let app = app(RateLimitLayer::new(limiter(), policies, GlobalKey));
    assert!(get_passes(&app, "/").await);
    let denied = get(&app, "/").await;
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["burst", "steady"]));
    assert_eq!(denied.header("retry-after").as_deref(), Some("60"));
}

#[tokio::test]
async fn a_plan_is_chosen_for_each_request() {
    let (free, paid) = (Policy::per_minute("free", 1).unwrap(), Policy::per_minute("paid", 3).unwrap());
    let plan = move |parts: &Parts, _: &Key| match parts.headers.get("x-plan") {
        Some(plan) if plan == "paid" => paid.clone(),
        _ => free.clone(),
    };
    let app = app(RateLimitLayer::new(limiter(), plan, GlobalKey));
    assert!(get_passes(&app, "/").await);
    assert!(!get_passes(&app, "/").await);
    for left in [2, 1, 0] {
        let reply = get_with(&app, "/", &[("x-plan", "paid")]).await;
        assert_eq!(reply.header("ratelimit").unwrap(), format!(r#""paid";r={left};t=60"#));
    }
    assert_eq!(get_with(&app, "/", &[("x-plan", "paid")]).await.status, 429);
}

#[tokio::test]
async fn a_plan_may_depend_on_the_key() {
    let plan = |_: &Parts, key: &Key| {
        let limit = if *key == Key::from("vip") { 2 } else { 1 };
        [Policy::per_minute("plan", limit).unwrap()]
    };
    let by_query = |parts: &Parts| Key::from(parts.uri.query().unwrap_or(""));
    let app = app(RateLimitLayer::new(limiter(), plan, by_query));
    for (path, passes) in [("/?a", true), ("/?a", false), ("/?vip", true), ("/?vip", true), ("/?vip", false)] {
        assert_eq!(get_passes(&app, path).await, passes, "{path}");
    }
}

/// A layer without a policy would limit nothing. The fault appears with the request and is not that of the client.
#[tokio::test]
async fn a_plan_without_a_policy_is_500_with_the_reason() {
    let none = |_: &Parts, _: &Key| Vec::<Policy>::new();
    for reply in [
        get(&app(RateLimitLayer::new(limiter(), none, GlobalKey)), "/").await,
        get(&app(RateLimitLayer::new(limiter(), Vec::<Policy>::new(), GlobalKey)), "/").await,
    ] {
        assert_eq!(reply.status, 500);
        assert_eq!(reply.json()["detail"], "no policy, so nothing would be limited; give at least one");
        assert_eq!(reply.header("retry-after"), None);
    }
}

#[derive(Clone)]
struct Paid;

#[tokio::test]
async fn a_route_may_choose_its_policies_for_each_request() {
    let (free, paid) = (Policy::per_minute("free", 1).unwrap(), Policy::per_minute("paid", 3).unwrap());
    let plan = move |parts: &Parts, _: &Key| match parts.extensions.get::<Paid>() {
        Some(Paid) => paid.clone(),
        None => free.clone(),
    };
    let limit = crate::support::app::layer(10, GlobalKey).route("/search", Route::new().policies(plan.clone()));
    let limit = limit.route("/login", Route::new().fail_closed().policies(plan));
    let (anonymous, customer) = (app(limit.clone()), app(limit).layer(Extension(Paid)));
    assert_eq!(get(&anonymous, "/search").await.header("ratelimit").as_deref(), Some(r#""free";r=0;t=60"#));
    assert!(!get_passes(&anonymous, "/login").await, "both routes share one budget");
    assert_eq!(get(&customer, "/login").await.header("ratelimit").as_deref(), Some(r#""paid";r=2;t=60"#));
    assert_eq!(get(&customer, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=9;t=60"#));
}
