use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::{
    Algorithm, ConfigError, HeaderStyle, MemoryStore, PeerIp, Policy,
    RateLimitLayer,
};

pub fn app() -> Result<Router, ConfigError> {
    let policy = Policy::new("per-client", 1, Duration::from_secs(20))?
        .with_algorithm(Algorithm::TokenBucket)
        .with_burst(5);
    let limit = RateLimitLayer::new(MemoryStore::new(), policy, PeerIp::new())
        .with_headers(HeaderStyle::TowerGovernorCompat)
        .validated()?;
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}
