//! governor and tower_governor.

use super::*;

// `.per_second(2).burst_size(5)` of tower_governor
fn each_2_s() -> Made<Policy> {
    Ok(Policy::new("api", 1, Duration::from_secs(2))?.with_algorithm(Algorithm::TokenBucket).with_burst(5))
}

// `GovernorConfig::default()`
fn their_default() -> Made<Policy> {
    Ok(Policy::per_second("api", 2)?.with_algorithm(Algorithm::TokenBucket).with_burst(8))
}

// `RateLimiter::direct(quota)`, `RateLimiter::keyed(quota)`
fn for_all_quotas() -> Limiter {
    Limiter::new(MemoryStore::new())
}

// `NotUntil::wait_time_from(now)`
fn not_until(decision: &Decision) -> Option<Duration> {
    Decision::retry_after(decision)
}

// `GovernorError` in `.error_handler(..)`; `UnableToExtractKey`
fn errors(denial: &Denial) -> (Reason, KeyError) {
    (Denial::reason(denial), KeyError::missing_credential(COOKIE, HeaderValue::from_static("Session")))
}

// `.finish()`
fn finish(layer: RateLimitLayer<PeerIp>) -> Made<RateLimitLayer<PeerIp>> {
    layer.validated()
}

// `limiter().len()`
fn len(store: &MemoryStore) -> usize {
    MemoryStore::keys(store)
}

// `Quota::per_minute(nonzero!(30)).allow_burst(nonzero!(5))`
fn quota() -> Made<Policy> {
    Ok(Policy::per_minute("api", 30)?.with_algorithm(Algorithm::TokenBucket).with_burst(5))
}

// `until_ready()`, `until_key_ready(&key)`
async fn until_ready(limiter: Limiter, policy: Policy, key: Key, wait: Duration) -> Answered<Decision> {
    Limiter::acquire(&limiter, key, &policy, 1).within(wait).await
}

// `check_key_n(&key, n)`, `InsufficientCapacity`
async fn check_n(limiter: Limiter, policy: Policy, key: Key, n: u64) -> Answered<Option<Duration>> {
    let decision = Limiter::check(&limiter, key, &policy, n).await?;
    Ok(Decision::retry_after(&decision)) // `None`, too, if the check was allowed
}
