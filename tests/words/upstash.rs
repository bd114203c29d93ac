//! Upstash ratelimit.

use super::*;

// `Ratelimit.slidingWindow(10, "10 s")`
fn sliding() -> Made<[Policy; 2]> {
    let exact = Policy::parse("api", "10/10s")?;
    Ok([exact.clone(), exact.with_algorithm(Algorithm::SlidingWindowCounter)])
}

// `Ratelimit.tokenBucket(5, "1 s", 20)`
fn bucket() -> Made<Policy> {
    Ok(Policy::parse("api", "5/s")?.with_algorithm(Algorithm::TokenBucket).with_burst(20))
}

// `limit(id, { rate: 5 })`
async fn limit(limiter: Limiter, policy: Policy, id: Key) -> Answered<Decision> {
    Limiter::check(&limiter, id, &policy, 5).await
}

// `blockUntilReady(id, 5_000)`
async fn until_ready(limiter: Limiter, policy: Policy, id: Key) -> Answered<Decision> {
    Limiter::acquire(&limiter, id, &policy, 1).within(Duration::from_secs(5)).await
}

// `getRemaining(id)`, `resetUsedTokens(id)`
async fn remaining(limiter: Limiter, policy: Policy, id: Key) -> Answered<Option<u64>> {
    let left = Limiter::peek(&limiter, &id, &policy).await?.available();
    Limiter::reset(&limiter, &id, &policy).await?;
    Ok(left)
}

// `ephemeralCache`
fn cache() -> RedisStoreBuilder {
    RedisStoreBuilder::deny_cache(RedisStore::builder(), true)
}

// `timeout: 1000`
fn timeout(layer: RateLimitLayer<PeerIp>) -> (RedisStoreBuilder, RateLimitLayer<PeerIp>) {
    (RedisStoreBuilder::deadline(RedisStore::builder(), Duration::from_millis(100)), layer.fail_open())
}
