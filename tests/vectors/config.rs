//! config.json: files, what they mean, and the places of their mistakes. Routes are judged by requests through a layer.

use std::{collections::BTreeSet, convert::Infallible};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tollgate::{
    Algorithm, Decision, GlobalKey, Limiter, MemoryStore, Policy, http, limits::LimitsConfig, store::FailingStore,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::outcome::{Outcome, expect, id, unknown};

pub(crate) async fn run(file: &Value) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for case in file["config"].as_array().unwrap() {
        results.push((id(case), run_case(case).await));
    }
    results
}

async fn run_case(case: &Value) -> Outcome {
    if let Some(skipped) = unknown(case, &["id", "title", "toml", "errors", "expect"]) {
        return skipped;
    }
    let errors: BTreeSet<&str> = case["errors"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let limits = match toml::from_str::<LimitsConfig>(case["toml"].as_str().unwrap()) {
        Ok(limits) => limits,
        Err(error) => {
            let place = |line: &'_ str| line.split_once(": ").map(|(place, _)| place.to_owned());
            let places: BTreeSet<String> = error.message().lines().filter_map(place).collect();
            let places: BTreeSet<&str> = places.iter().map(String::as_str).collect();
            return expect("places", &places, &errors).into();
        }
    };
    if !errors.is_empty() {
        return Outcome::Failed(format!("accepted, expected {errors:?}"));
    }
    let expected = &case["expect"];
    if let Some(skipped) = unknown(expected, &["policies", "routes"]) {
        return skipped;
    }
    for (name, expected) in expected["policies"].as_object().into_iter().flatten() {
        let Some(policy) = limits.policy(name) else { return Outcome::Failed(format!("no policy {name}")) };
        if let Err(why) = compare_policy(policy, expected) {
            return Outcome::Failed(format!("{name}: {why}"));
        }
    }
    for (route, expected) in expected["routes"].as_object().into_iter().flatten() {
        if let Err(why) = compare_route(&limits, route, expected).await {
            return Outcome::Failed(format!("{route}: {why}"));
        }
    }
    Outcome::Passed
}

/// Compares the fields that `expected` has with those of the policy.
fn compare_policy(policy: &Policy, expected: &Value) -> Result<(), String> {
    for (field, expected) in expected.as_object().unwrap() {
        let actual = match field.as_str() {
            "limit" => json!(policy.limit()),
            "window_us" => json!(policy.window().map(|window| window.as_micros() as u64)),
            "algorithm" => json!(match policy.algorithm() {
                Algorithm::SlidingWindowLog => "log",
                Algorithm::SlidingWindowCounter => "counter",
                Algorithm::FixedWindow => "fixed",
                Algorithm::TokenBucket => "token-bucket",
                _ => "?",
            }),
            "burst" => json!(policy.burst()),
            "resolution_us" => json!(policy.resolution().map(|resolution| resolution.as_micros() as u64)),
            "shadow" => json!(policy.is_shadow()),
            other => return Err(format!("{other} is not supported")),
        };
        expect(field, &actual, expected)?;
    }
    Ok(())
}

/// Sends requests to the route and compares what they are charged, and what happens while the store fails.
async fn compare_route(limits: &LimitsConfig, route: &str, expected: &Value) -> Result<(), String> {
    let (method, path) = route.split_once(' ').unwrap_or(("GET", route));
    let (status, decision) = send(limits, Limiter::new(MemoryStore::new()), method, path).await;
    expect("status", &status, &StatusCode::OK)?;
    let (failing, _) = send(limits, Limiter::new(FailingStore::new()).without_notices(), method, path).await;
    for (field, expected) in expected.as_object().unwrap() {
        let actual = match field.as_str() {
            "exempt" => json!(decision.is_none() && failing == StatusCode::OK),
            "on-store-failure" => json!(match failing {
                StatusCode::OK => "open",
                StatusCode::SERVICE_UNAVAILABLE => "closed",
                _ => "?",
            }),
            "policies" => json!(charged(decision.as_ref()).map(|(name, _)| name).collect::<Vec<_>>()),
            "cost" => {
                let costs: BTreeSet<u64> = charged(decision.as_ref()).map(|(_, cost)| cost).collect();
                expect("cost", &costs, &BTreeSet::from([expected.as_u64().unwrap()]))?;
                continue;
            }
            other => return Err(format!("{other} is not supported")),
        };
        expect(field, &actual, expected)?;
    }
    Ok(())
}

/// Sends a request through a layer with the limits. Returns the status, and the decision that the handler sees.
async fn send(limits: &LimitsConfig, limiter: Limiter, method: &str, path: &str) -> (StatusCode, Option<Decision>) {
    let handler = service_fn(|request: Request<Body>| async move {
        let mut response = Response::new(Body::empty());
        if let Some(decision) = request.extensions().get::<Decision>() {
            response.extensions_mut().insert(decision.clone());
        }
        Ok::<_, Infallible>(response)
    });
    let service = limits.layer(limiter, GlobalKey).unwrap().layer(handler);
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    (response.status(), response.extensions().get::<Decision>().cloned())
}

/// The policies of a decision, with what the request was charged under each.
fn charged(decision: Option<&Decision>) -> impl Iterator<Item = (&str, u64)> {
    let policies = decision.map(Decision::policies).unwrap_or_default();
    policies.iter().map(|standing| (standing.policy.name(), standing.cost))
}
