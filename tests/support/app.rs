//! An application behind the layer, and a clock that the test moves.

use axum::{
    Router,
    body::Body,
    http::Request,
    routing::{get, post},
};
use tollgate::{KeyExtractor, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, rejection::Rejection};

use crate::support::{
    Down,
    http::{get as fetch, get_with, send},
};

/// A limiter, and the clock that it counts by.
pub(crate) fn timed() -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::new(MemoryStore::new().with_clock(clock.clone())), clock)
}

pub(crate) fn limiter() -> Limiter {
    timed().0
}

/// A limiter whose store cannot answer.
pub(crate) fn down() -> Limiter {
    Limiter::new(Down)
}

/// The policy "p", so many units a minute.
pub(crate) fn per_minute(limit: u32) -> Policy {
    Policy::per_minute("p", limit).unwrap()
}

/// So many units a minute for whatever `key` tells apart.
pub(crate) fn layer<K: KeyExtractor>(limit: u32, key: K) -> RateLimitLayer<K> {
    RateLimitLayer::new(limiter(), per_minute(limit), key)
}

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", get(|| async { "home" }))
        .route("/search", get(|| async { "found" }))
        .route("/login", get(|| async { "form" }).merge(post(|| async { "welcome" })))
        .route("/users/{id}", get(|| async { "user" }))
}

pub(crate) fn app<K, R>(limit: RateLimitLayer<K, R>) -> Router
where
    K: KeyExtractor,
    R: Rejection<Body>,
{
    routes().layer(limit)
}

/// Whether the request passed; anything but 200 and 429 is a failure.
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
