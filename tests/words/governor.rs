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

// `check()`, `check_key(&key)`
async fn check(limiter: Limiter, policy: Policy, key: Key) -> Answered<[bool; 2]> {
    let at_once = Limiter::try_check(&limiter, &key, &policy, 1)?;
    Ok([at_once.is_allowed(), Limiter::check(&limiter, key, &policy, 1).await?.is_allowed()])
}

// `Arc<DefaultKeyedRateLimiter<K>>`
fn shared(limiter: &Limiter) -> Limiter {
    limiter.clone()
}

// `FakeRelativeClock`
fn by_hand(clock: ManualClock) -> MemoryStore {
    MemoryStore::with_clock(MemoryStore::new(), clock) // with feature `test-util`
}

// `NotUntil::wait_time_from(now)`
fn not_until(decision: &Decision) -> Option<Duration> {
    Decision::retry_after(decision)
}

// `GovernorError` in `.error_handler(..)`; `UnableToExtractKey`
fn errors(denial: &Denial) -> (Reason, KeyError) {
    let (header, challenge) = (COOKIE, HeaderValue::from_static("Session"));
    (Denial::reason(denial), KeyError::missing_credential(header, challenge))
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

// `stream.ratelimit_stream(&limiter)`
async fn each_item(limiter: Limiter, policy: Policy, key: Key, wait: Duration, items: Vec<u8>) -> Answered<usize> {
    for (sent, _item) in items.iter().enumerate() {
        if !Limiter::acquire(&limiter, &key, &policy, 1).within(wait).await?.is_allowed() {
            return Ok(sent);
        }
    }
    Ok(items.len())
}

// `check_key_n(&key, n)`, `InsufficientCapacity`
async fn check_n(limiter: Limiter, policy: Policy, key: Key, n: u64) -> Answered<Option<Duration>> {
    let decision = Limiter::check(&limiter, key, &policy, n).await?;
    Ok(Decision::retry_after(&decision)) // `None`, too, if the check was allowed
}
