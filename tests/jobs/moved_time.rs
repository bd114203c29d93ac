//! A test that moves the time.

use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::{ConfigError, GlobalKey, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer};

/// The application under test.
fn app(limiter: impl Into<Limiter>) -> Result<Router, ConfigError> {
    let limit = RateLimitLayer::new(limiter, Policy::per_minute("all", 1)?, GlobalKey);
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}

#[tokio::test]
async fn a_client_passes_again_after_a_minute() {
    let clock = ManualClock::default();
    let app = app(MemoryStore::new().with_clock(clock.clone())).unwrap();
    let status = async || crate::support::http::get(&app, "/").await.status.as_u16();
    assert_eq!((status().await, status().await), (200, 429));
    clock.advance(Duration::from_secs(60));
    assert_eq!(status().await, 200);
}
