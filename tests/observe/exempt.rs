//! Events of exempt requests, without which a limit that exempts all requests would go unnoticed.

use std::sync::Arc;

use axum::{Router, routing::get};
use http::request::Parts;
use metrics::set_default_local_recorder;
use tollgate::observe::{Metrics, Observer, Tracing};
use tollgate::{GlobalKey, HeaderKey, Key, KeyExtractor, Limiter, MemoryStore, MissingKey, RateLimitLayer, Route};
use tracing::Level;

use crate::support::http::{get as fetch, get_with};
use crate::support::{log::Log, per_minute, recorder::Recorder, scrape::recorder};

/// `/healthz`, requests with the query `internal`, and requests without a tenant are exempt.
fn app(observer: impl Observer) -> Router {
    let tenant = HeaderKey::new("x-tenant").unwrap();
    let key = move |parts: &Parts| {
        if parts.uri.query() == Some("internal") { Ok(None::<Key>) } else { tenant.extract(parts) }
    };
    let limiter = Limiter::new(MemoryStore::new()).with_observer(observer);
    let limit = RateLimitLayer::new(limiter, per_minute("p", 9), key).on_missing_key(MissingKey::Exempt);
    let limit = limit.route("/healthz", Route::exempt());
    Router::new().route("/", get(|| async {})).route("/healthz", get(|| async {})).layer(limit)
}

/// Sends four exempt requests and one with a tenant.
async fn send_requests(app: &Router) {
    for path in ["/healthz", "/?internal", "/", "/"] {
        assert_eq!(fetch(app, path).await.header("ratelimit"), None);
    }
    assert!(get_with(app, "/", &[("x-tenant", "a")]).await.header("ratelimit").is_some());
}

#[tokio::test]
async fn law_13_exempt_requests_are_reported_with_the_cause() {
    let (first, second) = (Recorder::default(), Recorder::default());
    let limiter = |observer: Recorder| Limiter::new(MemoryStore::new()).with_observer(Arc::new(observer));
    send_requests(&app(Arc::new(first.clone()))).await;
    let seen = first.take();
    assert_eq!(seen.exempt, ["route", "key", "missing_key", "missing_key"]);
    assert_eq!((seen.decisions.len(), seen.refusals.len()), (1, 0));

    // Both observers receive the event. A request that another subject limits is not exempt.
    let both = limiter(first.clone()).with_observer(second.clone());
    let tenant = HeaderKey::new("x-tenant").unwrap();
    let limit = RateLimitLayer::new(both, per_minute("p", 9), tenant).on_missing_key(MissingKey::Exempt);
    let alone = Router::new().route("/", get(|| async {})).layer(limit.clone());
    fetch(&alone, "/").await;
    let with_another = limit.and(per_minute("all", 9), GlobalKey);
    fetch(&Router::new().route("/", get(|| async {})).layer(with_another), "/").await;
    assert_eq!((first.take().exempt, second.take().exempt), (vec!["missing_key"], vec!["missing_key"]));
}

#[tokio::test]
async fn a_missing_key_is_reported_before_an_exempt_one() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(MemoryStore::new()).with_observer(recorder.clone());
    let missing = HeaderKey::new("x-tenant").unwrap();
    let none = |_: &Parts| None::<Key>;
    let limit = RateLimitLayer::new(limiter, per_minute("p", 9), none);
    let limit = limit.and_optional(per_minute("q", 9), missing).and(per_minute("r", 9), none);
    fetch(&Router::new().route("/", get(|| async {})).layer(limit), "/").await;
    assert_eq!(recorder.take().exempt, ["missing_key"]);
}

#[tokio::test]
async fn exempt_requests_are_counted_by_cause() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    send_requests(&app(Metrics::new())).await;
    let scrape = handle.render();
    for (cause, count) in [("route", 1), ("key", 1), ("missing_key", 2)] {
        let line = format!(r#"tollgate_exempt_requests_total{{cause="{cause}"}} {count}"#);
        assert!(scrape.lines().any(|shown| shown == line), "{line}\nis not in\n{scrape}");
    }
}

#[tokio::test]
async fn exempt_requests_are_debug_and_trace_events() {
    for (level, lines) in [(Level::DEBUG, 2), (Level::TRACE, 4)] {
        let (log, _guard) = Log::start(level);
        send_requests(&app(Tracing::new())).await;
        let written = log.take();
        let exempt: Vec<_> =
            written.iter().filter(|line| line.contains("tollgate::exempt: not limited cause=")).collect();
        assert_eq!(exempt.len(), lines, "{written:?}");
    }
}
