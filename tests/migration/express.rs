use axum::{Router, routing::get};
use tollgate::{
    ClientIp, ConfigError, Decision, Error, Limiter, Policy, RateLimitLayer,
};

pub fn app(limiter: Limiter) -> Result<Router, ConfigError> {
    let policy = Policy::per_minute("per-client", 5)?;
    let client = ClientIp::x_forwarded_for(1)?;
    let limit = RateLimitLayer::new(limiter, policy, client).validated()?;
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}

pub async fn export(limiter: &Limiter, user: u64) -> Result<Decision, Error> {
    let exports = Policy::per_hour("exports", 50)?;
    limiter.check(user, &exports, 10).await
}
