use axum::{Router, routing::get};
use tollgate::{ConfigError, PeerIp, Policy, RateLimitLayer, RedisStore};

// In `main`: `app(RedisStore::open(url)?)?`.
pub fn app(store: RedisStore) -> Result<Router, ConfigError> {
    let policy = Policy::per_minute("per-client", 5)?;
    let limit =
        RateLimitLayer::new(store, policy, PeerIp::new()).validated()?;
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}
