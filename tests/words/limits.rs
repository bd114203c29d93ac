//! limits, flask-limiter, slowapi.

use super::*;

// `"10 per minute"`, `"5/minute"`
fn rate() -> Made<[Policy; 3]> {
    Ok([Policy::parse("api", "10 per minute")?, Policy::parse("b", "5/minute")?, Policy::parse("c", "100/30d")?])
}

// `MovingWindowRateLimiter`, `SlidingWindowCounterRateLimiter`, `FixedWindowRateLimiter`
const STRATEGIES: [Algorithm; 3] =
    [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow];

// `@limiter.limit("5/minute")`
fn of_one_route(limit: RateLimitLayer<PeerIp>, policy: Policy) -> Router {
    async fn handler() {}
    let around_all = limit.clone().route("/search", Route::new().policies(policy));
    Router::new().route("/", get(handler).layer(limit)).layer(around_all)
}

// `shared_limit(.., scope="api")`
fn shared(limit: RateLimitLayer<PeerIp>) -> Router {
    let routes = Router::new().route("/a", get(async || {}).layer(limit.clone()));
    routes.route("/b", get(async || {}).layer(limit))
}

// `key_func=get_remote_address`
fn by_address() -> (PeerIp, ClientIp) {
    (PeerIp::new(), ClientIp::behind_cloudflare())
}

// `exempt_when=is_staff`, `@limiter.exempt`
fn exempt(limit: RateLimitLayer<PeerIp>) -> (RateLimitLayer<PeerIp>, impl KeyExtractor) {
    let others =
        key::from_fn(|parts| if parts.headers.contains_key("x-staff") { None } else { Some(Key::from("all")) });
    (limit.route("/healthz", Route::exempt()), others)
}

// `cost=5`
fn cost(limit: RateLimitLayer<PeerIp>) -> [RateLimitLayer<PeerIp>; 2] {
    [limit.clone().with_cost(5), limit.with_cost_fn(|parts| if parts.method == "POST" { 5 } else { 1 })]
}

// `deduct_when=failed`
fn deduct_when(limiter: Limiter, policy: Policy) -> RateLimitLayer<PeerIp> {
    let policy = Policy::with_holds(policy, HoldSettings::new());
    RateLimitLayer::new(limiter, policy, PeerIp::new())
        .with_settlement(|response| if response.status == 401 { Settlement::Held } else { Settlement::Nothing })
}

// `swallow_errors=True`, `in_memory_fallback_enabled=True`
fn without_storage(limit: RateLimitLayer<PeerIp>) -> [RateLimitLayer<PeerIp>; 2] {
    [limit.clone().fail_open(), limit.fail_local()]
}

// `hit`, `test`, `get_window_stats(..)`, `clear`
async fn strategies(limiter: Limiter, policy: Policy, key: Key) -> Answered<[Decision; 3]> {
    let hit = Limiter::check(&limiter, &key, &policy, 2).await?;
    let test = Limiter::peek_all(&limiter, Check::new(&key, &policy, 2)).await?;
    let stats = Limiter::peek(&limiter, &key, &policy).await?;
    Limiter::reset(&limiter, &key, &policy).await?;
    Ok([hit, test, stats])
}
