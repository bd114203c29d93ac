use axum::{Router, routing::get};
use lambda_http::request::RequestContext;
use tollgate::{
    ConfigError, Limiter, PeerIp, Policy, RateLimitLayer,
    http::request::Parts,
    key::{self, KeyError},
};

/// For `lambda_http::run(app(limiter)?)`.
pub fn app(limiter: Limiter) -> Result<Router, ConfigError> {
    let source_ip = key::from_fn(|head: &Parts| {
        let address = match head.extensions.get::<RequestContext>() {
            Some(RequestContext::ApiGatewayV2(context)) => {
                context.http.source_ip.as_deref()
            }
            _ => None,
        };
        let address = address.and_then(|address| address.parse().ok());
        let address = address.ok_or(KeyError::missing("source IP"))?;
        Ok(Some(PeerIp::new().key_of(address)))
    });
    let policy = Policy::per_minute("per-client", 5)?;
    let limit = RateLimitLayer::new(limiter, policy, source_ip).validated()?;
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}
