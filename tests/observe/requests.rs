//! The method and the route in events of a layer.

use axum::routing::{any, get};
use axum::{Router, body::Body};
use http::{Request, StatusCode};
use metrics::set_default_local_recorder;
use tollgate::observe::{Metrics, Tracing};
use tollgate::{GlobalKey, HeaderKey, KeyExtractor, Limiter, MemoryStore, RateLimitLayer, Route};
use tower::ServiceExt;
use tracing::Level;

use super::recorded;
use crate::support::scrape::{assert_shows, recorder};
use crate::support::{DownStore, SilentStore, per_minute};
use crate::support::{http::get as fetch, log::Log, recorder::Recorder};

/// Users of an API that is nested, as the router of a service has them.
fn users<K: KeyExtractor>(layer: RateLimitLayer<K>) -> Router {
    let users = Router::new().route("/users/{id}", get(|| async {}));
    Router::new().nest("/api", users).route("/other", any(|| async {})).layer(layer)
}

async fn send(app: &Router, method: &str, path: &str) -> StatusCode {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn law_10_a_decision_names_the_template_of_the_router_and_not_the_path() {
    let (limiter, recorder) = recorded();
    let app = users(RateLimitLayer::new(limiter, per_minute("p", 1), GlobalKey));
    for status in [200, 429] {
        assert_eq!(send(&app, "GET", "/api/users/alice?token=secret").await, status);
    }
    let seen = recorder.take();
    assert_eq!(seen.requests, ["GET /api/users/{id}", "GET /api/users/{id}"]);
    assert!(!seen.debug.contains("alice") && !seen.debug.contains("secret"), "{}", seen.debug);
}

#[tokio::test]
async fn law_10_without_a_router_a_decision_names_the_entry_of_the_layer_and_no_path_or_method_of_the_client() {
    let (limiter, recorder) = recorded();
    let layer =
        RateLimitLayer::new(limiter, per_minute("p", 100), GlobalKey).route("POST /mcp/{*rest}", Route::new().cost(2));
    let app = Router::new().fallback(|| async {}).layer(layer);
    for (method, path) in [("POST", "/mcp/alice"), ("GET", "/mcp/alice"), ("POST", "/alice"), ("ALICE", "/")] {
        send(&app, method, path).await;
    }
    let seen = recorder.take();
    assert_eq!(seen.requests, ["POST /mcp/{*rest}", "GET unmatched", "POST unmatched", "other unmatched"]);
    assert!(!seen.debug.to_lowercase().contains("alice"), "{}", seen.debug);
}

#[tokio::test]
async fn each_method_of_http_is_named() {
    let (limiter, recorder) = recorded();
    let app = Router::new().fallback(|| async {}).layer(RateLimitLayer::new(limiter, per_minute("p", 100), GlobalKey));
    let methods = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
    for method in methods {
        send(&app, method, "/").await;
    }
    assert_eq!(recorder.take().requests, methods.map(|method| format!("{method} unmatched")));
}

#[tokio::test]
async fn refusals_without_a_check_name_the_route_also_in_shadow_mode() {
    for shadow in [false, true] {
        let recorder = Recorder::default();
        let limiter = Limiter::new(MemoryStore::new()).with_observer(recorder.clone());
        let layer = RateLimitLayer::new(limiter, per_minute("p", 1), HeaderKey::new("x-api-key").unwrap());
        send(&users(layer.with_shadow(shadow)), "GET", "/api/users/alice").await;
        let seen = recorder.take();
        assert_eq!(seen.requests, ["GET /api/users/{id}"]);
        assert_eq!((seen.refusals.len(), seen.would_refuse.len()), (usize::from(!shadow), usize::from(shadow)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_for_the_store_names_its_route_and_a_check_without_a_layer_none() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(SilentStore).with_observer(recorder.clone());
    let app = users(RateLimitLayer::new(limiter.clone(), per_minute("p", 1), GlobalKey).fail_closed());
    assert_eq!(send(&app, "GET", "/api/users/alice").await, 503);
    assert_eq!(recorder.take().requests, ["GET /api/users/{id}"]);
    let (limiter, recorder) = recorded();
    let _ = limiter.check("alice", &per_minute("p", 1), 1).await.unwrap();
    let seen = recorder.take();
    assert_eq!((seen.decisions.len(), seen.requests.len()), (1, 0));
}

#[tokio::test]
async fn the_log_line_of_a_denial_has_the_route_and_the_method() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new());
    let policy = per_minute("p", 1).with_near_limit(1.0);
    let app = users(RateLimitLayer::new(limiter, policy, GlobalKey));
    for _ in 0..2 {
        fetch(&app, "/api/users/alice").await;
    }
    let lines = log.take();
    let denied = lines.last().unwrap();
    assert!(denied.starts_with("DEBUG tollgate::decision: denied policy=\"p\" key="), "{denied}");
    assert!(denied.contains(" route=\"/api/users/{id}\" method=\"GET\" cost=1 "), "{denied}");
}

#[tokio::test]
async fn each_refused_request_is_counted_once_by_route_method_and_cause() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let observed = |limiter: Limiter| limiter.with_observer(Metrics::new());
    let policies = || [per_minute("p", 1), per_minute("q", 1)];
    let memory = observed(Limiter::new(MemoryStore::new()));
    let limited = users(RateLimitLayer::new(memory.clone(), policies(), GlobalKey));
    for _ in 0..4 {
        fetch(&limited, "/api/users/alice").await;
    }
    let keyed = users(RateLimitLayer::new(memory, policies(), HeaderKey::new("x-api-key").unwrap()));
    fetch(&keyed, "/other").await;
    let down = users(RateLimitLayer::new(observed(Limiter::new(DownStore)), policies(), GlobalKey).fail_closed());
    send(&down, "POST", "/other").await;
    send(&down, "ALICE", "/nowhere").await;
    assert_shows(
        &handle,
        &[
            r#"tollgate_refusals_by_route_total{route="/api/users/{id}",method="GET",cause="denied"} 3"#,
            r#"tollgate_refusals_by_route_total{route="/other",method="GET",cause="missing_key"} 1"#,
            r#"tollgate_refusals_by_route_total{route="/other",method="POST",cause="closed"} 1"#,
            r#"tollgate_refusals_by_route_total{route="unmatched",method="other",cause="closed"} 1"#,
        ],
    );
}
