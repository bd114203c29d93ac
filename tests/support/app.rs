//! An axum application behind the layer, and a clock that the test advances.

use axum::routing::{get, post};
use axum::{Router, body::Body, http::Request};
use tollgate::{KeyExtractor, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, rejection::Rejection};

use crate::support::http::{get as fetch, get_with, send};
use crate::support::recorder::Recorder;
use crate::support::{DownStore, says};

/// A limiter over a memory store, and the manual clock of that store.
pub(crate) fn limiter_and_clock() -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::new(MemoryStore::new().with_clock(clock.clone())), clock)
}

/// A limiter over a memory store whose clock stands still.
pub(crate) fn limiter() -> Limiter {
    limiter_and_clock().0
}

/// A limiter whose store fails every check.
pub(crate) fn down_limiter() -> Limiter {
    Limiter::new(DownStore)
}

/// The policy `p` of `limit` units a minute.
pub(crate) fn per_minute(limit: u64) -> Policy {
    Policy::per_minute("p", limit).unwrap()
}

/// A layer that grants each value of `key` `limit` units a minute.
pub(crate) fn layer<K: KeyExtractor>(limit: u64, key: K) -> RateLimitLayer<K> {
    RateLimitLayer::new(limiter(), per_minute(limit), key)
}

/// A router with the routes `/`, `/search`, `/login` and `/users/{id}`.
pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", get(|| async { "home" }))
        .route("/search", get(|| async { "found" }))
        .route("/login", get(|| async { "form" }).merge(post(|| async { "welcome" })))
        .route("/users/{id}", get(|| async { "user" }))
}

/// The handler behind a layer that lets no request pass.
pub(crate) async fn never_run() -> &'static str {
    panic!("the handler has run")
}

/// Asserts that a layer answers a request with 500 and reports the mistake, and that its handler does not run.
#[track_caller]
pub(crate) fn assert_mistaken<K: KeyExtractor>(
    layer: RateLimitLayer<K>,
    recorder: &Recorder,
    message: &'static str,
) -> impl Future<Output = ()> {
    says(layer.clone().validated().unwrap_err(), message);
    let app = Router::new().route("/", get(never_run)).layer(layer);
    async move {
        assert_eq!(fetch(&app, "/").await.status, 500);
        let seen = recorder.take();
        assert_eq!(seen.refusals, ["misconfigured"]);
        says(&seen.debug, message);
    }
}

/// [`routes`] behind `limit`.
pub(crate) fn app<K, R>(limit: RateLimitLayer<K, R>) -> Router
where
    K: KeyExtractor,
    R: Rejection<Body>,
{
    routes().layer(limit)
}

/// Whether the response is 200; any status but 200 and 429 fails the test.
pub(crate) async fn passes(app: &Router, request: Request<Body>) -> bool {
    passed(send(app, request).await.status.as_u16())
}

pub(crate) async fn get_passes(app: &Router, path: &str) -> bool {
    passed(fetch(app, path).await.status.as_u16())
}

pub(crate) async fn get_passes_with(app: &Router, path: &str, name: &str, value: &str) -> bool {
    passed(get_with(app, path, &[(name, value)]).await.status.as_u16())
}

fn passed(status: u16) -> bool {
    assert!(matches!(status, 200 | 429), "status {status}");
    status == 200
}
