//! nginx.

use super::*;

// `limit_req_zone $binary_remote_addr .. rate=10r/s`, `limit_req .. burst=5 nodelay`
fn rate(limiter: Limiter) -> Made<RateLimitLayer<PeerIp>> {
    let policy = Policy::per_second("api", 10)?.with_algorithm(Algorithm::TokenBucket).with_burst(6);
    Ok(RateLimitLayer::new(limiter, policy, PeerIp::new()))
}

// `limit_req .. burst=5`, without `nodelay`
fn delayed(limiter: Limiter) -> Made<RateLimitLayer<PeerIp>> {
    let policy = Policy::per_second("api", 10)?.with_algorithm(Algorithm::TokenBucket).with_burst(1);
    Ok(RateLimitLayer::new(limiter, policy, PeerIp::new()).wait_up_to(Duration::from_millis(500)))
}

// `limit_req_dry_run on`
fn dry_run(limit: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp> {
    limit.with_shadow(true) // `tollgate_decisions_total` has the outcome would_deny
}

// `limit_req_status 429`
fn status() -> ProblemJson {
    ProblemJson::with_quota_status(ProblemJson::default(), StatusCode::SERVICE_UNAVAILABLE)
}

// `limit_conn addr 3`
fn at_once() -> Made<Policy> {
    Policy::concurrent("at-once", 3)
}

// an empty key, by `map` or `geo`
fn not_limited() -> ClientIp {
    ClientIp::exempt(ClientIp::peer(), ["10.0.0.0/8"]) // a closure may also return a key of `None`
}
