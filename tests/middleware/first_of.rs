//! Alternatives of a layer: an included quota, then credits.

use std::time::Duration;

use axum::{Extension, Router, routing::get};
use tollgate::middleware::{Bill, Settlement};
use tollgate::policy::{FirstOf, HoldSettings};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{
    Check, Decision, GlobalKey, HeaderKey, Key, MemoryStore, Policy, RateLimitLayer, Route, http::request::Parts,
};

use crate::support::app::{app, get_passes, limiter, limiter_and_clock};
use crate::support::{http::get as fetch, says};

fn policy(name: &str, limit: u64) -> Policy {
    Policy::per_minute(name, limit).unwrap()
}

fn included_then_credits() -> FirstOf {
    FirstOf::new([policy("included", 2), policy("credits", 1)])
}

#[tokio::test]
async fn the_fields_are_those_of_the_policy_that_was_charged() {
    let (limiter, clock) = limiter_and_clock();
    let app = app(RateLimitLayer::new(limiter, included_then_credits(), GlobalKey).validated().unwrap());
    let fields = async || {
        let reply = fetch(&app, "/").await;
        (reply.status.as_u16(), reply.header("ratelimit").unwrap(), reply.header("ratelimit-policy").unwrap())
    };
    let field = |status, limit: &str, policy: &str| (status, limit.to_owned(), policy.to_owned());
    assert_eq!(fields().await, field(200, r#""included";r=1;t=60"#, r#""included";q=2;w=60"#));
    clock.advance(Duration::from_secs(20));
    assert_eq!(fields().await, field(200, r#""included";r=0;t=40"#, r#""included";q=2;w=60"#));
    assert_eq!(fields().await, field(200, r#""credits";r=0;t=60"#, r#""credits";q=1;w=60"#));
    // The included quota has the shorter wait.
    assert_eq!(fields().await, field(429, r#""included";r=0;t=40"#, r#""included";q=2;w=60"#));
    let denied = fetch(&app, "/").await;
    assert_eq!(denied.header("retry-after").as_deref(), Some("40"));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["included"]));
    clock.advance(Duration::from_secs(40));
    assert!(get_passes(&app, "/").await);
}

#[tokio::test]
async fn a_handler_reads_which_policy_was_charged() {
    let limit = RateLimitLayer::new(limiter(), included_then_credits(), GlobalKey);
    let named =
        |Extension(decision): Extension<Decision>| async move { decision.policies()[0].policy.name().to_owned() };
    let app = Router::new().route("/", get(named)).layer(limit);
    for expected in ["included", "included", "credits"] {
        assert_eq!(fetch(&app, "/").await.text(), expected);
    }
}

#[tokio::test]
async fn law_3_alternatives_beside_another_key_are_charged_together_with_it_or_not() {
    let limiter = limiter();
    let limit = RateLimitLayer::new(limiter.clone(), included_then_credits(), key);
    let app = app(limit.and(policy("all", 2), GlobalKey));
    assert!(get_passes(&app, "/").await && get_passes(&app, "/").await);
    assert!(!get_passes(&app, "/").await, "the other key has nothing left");
    let credits = limiter.peek("k", &policy("credits", 1)).await.unwrap();
    assert_eq!(credits.available(), Some(1), "and the credits are untouched");
}

#[tokio::test]
async fn alternatives_may_have_different_costs_and_one_above_all_limits_is_refused() {
    let limit = RateLimitLayer::new(limiter(), FirstOf::new([policy("calls", 1), policy("tokens", 100)]), GlobalKey)
        .with_cost_of("tokens", 60);
    let limit = limit.route("/users/{id}", Route::new().cost_fn(|_| 2).cost_of("tokens", 30));
    let app = app(limit.route("/search", Route::new().cost_fn(|_| 2).cost_of("tokens", 101)));
    for (remaining, name) in [(0, "calls"), (40, "tokens")] {
        let limit = fetch(&app, "/").await.header("ratelimit").unwrap();
        assert!(limit.starts_with(&format!(r#""{name}";r={remaining};"#)), "{limit}");
    }
    let above_calls = fetch(&app, "/users/1").await.header("ratelimit").unwrap();
    assert!(above_calls.starts_with(r#""tokens";r=10;"#), "{above_calls}");
    assert!(!get_passes(&app, "/").await);
    assert_eq!(fetch(&app, "/search").await.status, 400, "above both limits");
}

#[tokio::test]
async fn a_closure_may_return_alternatives() {
    let by_path = |parts: &Parts, _: &Key| match parts.uri.path() {
        "/search" => included_then_credits(),
        _ => FirstOf::new(policy("all", 1)),
    };
    let app = app(RateLimitLayer::new(limiter(), by_path, GlobalKey));
    for passes in [true, true, true, false] {
        assert_eq!(get_passes(&app, "/search").await, passes);
    }
    assert!(get_passes(&app, "/").await && !get_passes(&app, "/").await);
}

#[tokio::test]
async fn the_hold_that_is_settled_belongs_to_the_policy_that_was_charged() {
    let limiter = limiter();
    let held = |name: &str, limit| policy(name, limit).with_holds(HoldSettings::new());
    let (included, credits) = (held("included", 10), held("credits", 100));
    let layer = RateLimitLayer::new(limiter.clone(), FirstOf::new([included.clone(), credits.clone()]), key)
        .with_cost(8)
        .with_settlement(|_: &tollgate::http::response::Parts| Settlement::AtEnd)
        .validated()
        .unwrap();
    let handler = |bill: Bill| async move { bill.set_cost(3) };
    let app = Router::new().route("/", get(handler)).layer(layer);
    for (of_included, of_credits) in [(7, 100), (7, 97), (7, 94)] {
        assert_eq!(fetch(&app, "/").await.status, 200);
        let left = async |policy: &Policy| limiter.peek("k", policy).await.unwrap().available().unwrap();
        assert_eq!((left(&included).await, left(&credits).await), (of_included, of_credits));
    }
}

#[tokio::test]
async fn a_layer_in_shadow_refuses_nothing() {
    let limit = RateLimitLayer::new(limiter(), included_then_credits(), GlobalKey).with_shadow(true);
    let app = app(limit);
    for _ in 0..5 {
        assert!(get_passes(&app, "/").await);
    }
}

#[test]
fn what_cannot_be_combined_is_a_mistake_of_the_layer() {
    for (alternatives, text) in [
        (FirstOf::new(Vec::new()), "no policy"),
        (FirstOf::new([policy("a", 1), policy("A", 2)]), "\"A\""),
        (FirstOf::new([policy("a", 4), policy("b", 4).with_shards(2)]), "shards"),
        (FirstOf::new([policy("a", 4), policy("b", 4).with_shadow(true)]), "shadow"),
    ] {
        let layer = RateLimitLayer::new(limiter(), alternatives, GlobalKey);
        says(layer.validated().unwrap_err(), text);
    }
}

/// A store of a user's own.
#[derive(Debug, Default)]
struct OwnStore {
    memory: MemoryStore,
    has_alternatives: bool,
}

impl Store for OwnStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.memory.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn has_alternatives(&self) -> bool {
        self.has_alternatives
    }
}

/// The layer's mistake. Each of its requests gets 500.
async fn refused_by(layer: RateLimitLayer<GlobalKey>) -> String {
    let app = app(layer.clone());
    assert_eq!(fetch(&app, "/").await.status, 500);
    layer.validated().map(drop).expect_err("every request is refused, and `validated` passes").to_string()
}

#[tokio::test]
async fn a_further_policy_with_a_lease_is_a_mistake_of_a_layer_with_alternatives() {
    for further in [policy("further", 100).with_lease(10), policy("further", 100).with_shards(4)] {
        let layer = RateLimitLayer::new(limiter(), included_then_credits(), GlobalKey);
        says(refused_by(layer.and(further.clone(), key)).await, "\"further\" has a lease or shards");
        let layer = RateLimitLayer::new(limiter(), further, GlobalKey);
        says(refused_by(layer.and(included_then_credits(), key)).await, "\"further\" has a lease or shards");
    }
    let alone = RateLimitLayer::new(limiter(), FirstOf::new(policy("alone", 10)), GlobalKey);
    assert!(alone.and(policy("further", 100).with_shards(4), key).validated().is_ok());
}

#[tokio::test]
async fn a_store_that_judges_no_alternatives_is_a_mistake_of_the_layer() {
    let layer = RateLimitLayer::new(OwnStore::default(), included_then_credits(), GlobalKey);
    says(refused_by(layer).await, "the store cannot charge the first of several policies");
    let alone = RateLimitLayer::new(OwnStore::default(), FirstOf::new(policy("alone", 10)), GlobalKey);
    assert!(get_passes(&app(alone.validated().unwrap()), "/").await, "one alone is a plain policy");
}

#[tokio::test]
async fn a_store_without_holds_is_a_mistake_if_an_alternative_limits_what_runs_at_once() {
    let store = OwnStore { has_alternatives: true, ..OwnStore::default() };
    let slots = ["few", "many"].map(|name| Policy::concurrent(name, 2).unwrap());
    says(refused_by(RateLimitLayer::new(store, FirstOf::new(slots), GlobalKey)).await, "the store has no holds");
}

#[test]
fn a_layer_that_settles_needs_an_alternative_with_holds() {
    let layer = RateLimitLayer::new(limiter(), included_then_credits(), GlobalKey)
        .with_settlement(|_: &tollgate::http::response::Parts| Settlement::AtEnd);
    says(layer.validated().unwrap_err(), "\"included\" has no holds");
}

#[tokio::test]
async fn a_cost_above_the_limits_of_all_alternatives_is_a_mistake_of_the_layer() {
    let layer = RateLimitLayer::new(limiter(), included_then_credits(), GlobalKey);
    let too_much = layer.clone().with_cost(3);
    assert_eq!(fetch(&app(too_much.clone()), "/").await.status, 500);
    says(too_much.validated().unwrap_err(), "a cost of 3 can never pass policy \"credits\"");
    assert!(layer.clone().with_cost(2).validated().is_ok(), "the included quota has room for it");
    assert!(layer.clone().with_cost(3).with_cost_of("credits", 1).validated().is_ok());
    says(layer.route("/search", Route::new().cost(3)).validated().unwrap_err(), "a cost of 3");
}

#[tokio::test]
async fn a_further_policy_with_the_name_of_an_alternative_is_a_mistake_of_the_layer() {
    let layer = RateLimitLayer::new(limiter(), included_then_credits(), GlobalKey);
    says(refused_by(layer.and(policy("Credits", 9), GlobalKey)).await, "\"Credits\"");
}

#[test]
fn a_cost_of_a_policy_that_is_no_alternative_is_a_mistake_of_the_layer() {
    let layer = RateLimitLayer::new(limiter(), included_then_credits(), GlobalKey);
    says(layer.clone().with_cost_of("credit", 1).validated().unwrap_err(), "no policy is called \"credit\"");
    assert!(layer.with_cost_of("credits", 1).validated().is_ok());
}

#[tokio::test]
async fn more_policies_than_a_check_may_have_are_a_mistake_of_the_layer() {
    let policies = |number| (0..number).map(|number| policy(&format!("p{number}"), 1)).collect::<Vec<_>>();
    let layer = RateLimitLayer::new(limiter(), FirstOf::new(policies(Check::MAX_CHARGES)), GlobalKey);
    assert!(layer.clone().validated().is_ok());
    says(refused_by(layer.and(policy("further", 1), GlobalKey)).await, "at most 64 charges");
    says(refused_by(RateLimitLayer::new(limiter(), policies(65), GlobalKey)).await, "at most 64 charges");
}

#[tokio::test]
async fn alternatives_that_are_all_shadow_policies_refuse_no_request_without_a_key() {
    let shadows = ["included", "credits"].map(|name| policy(name, 1).with_shadow(true));
    let layer = RateLimitLayer::new(limiter(), FirstOf::new(shadows), HeaderKey::new("x-tenant").unwrap());
    assert!(get_passes(&app(layer.validated().unwrap()), "/").await);
}

fn key(_: &Parts) -> Key {
    Key::from("k")
}
