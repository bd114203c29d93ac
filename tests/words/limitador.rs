//! limitador.

use super::*;

// `Limit::new(namespace, 10, 60, conditions, variables)`
fn limit() -> Made<(Policy, Key, Route)> {
    let key = Key::join([Key::from("acme"), Key::from(17_u64)]);
    Ok((Policy::per_minute("api", 10)?, key, Route::new().cost(5)))
}

// `namespace`
fn namespace(store: RedisStoreBuilder) -> RedisStoreBuilder {
    RedisStoreBuilder::prefix(store, "billing")
}

// `delta`
async fn delta(layer: RateLimitLayer<PeerIp>, limiter: Limiter, policy: Policy, key: Key) -> Answered<Decision> {
    let _layer = layer.with_cost(5);
    Limiter::check(&limiter, key, &policy, 5).await
}

// the limits file
fn limits_file(path: &str) -> Result<LiveLimits, Box<dyn std::error::Error>> {
    let parse = |text: &str| toml::from_str(text);
    Ok(LiveLimits::watch(path, parse)?)
}

// `check_rate_limited_and_update(..)`
async fn check_and_update(limiter: Limiter, check: Check) -> Answered<Decision> {
    Limiter::check_all(&limiter, check).await
}

// `is_rate_limited(..)`, the call `CheckRateLimit`
async fn is_limited(limiter: Limiter, check: Check) -> Answered<bool> {
    Ok(!Limiter::peek_all(&limiter, check).await?.is_allowed())
}

// `update_counters(..)`, the call `Report`
async fn report(limiter: Limiter, policy: Policy, key: Key) -> Answered<()> {
    Limiter::record(&limiter, key, &policy, 120).await
}

// `load_counters: true`
fn counters(decision: &Decision) -> Vec<u64> {
    Decision::policies(decision).iter().map(|counted| counted.available).collect()
}
