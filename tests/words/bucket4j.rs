//! bucket4j.

use super::*;

// several `Bandwidth`s of a bucket
fn bandwidths(limiter: Limiter, second: Policy, hour: Policy, key: PeerIp) -> RateLimitLayer<PeerIp> {
    RateLimitLayer::new(limiter, [second, hour], key)
}

// `capacity(50)`, `refillGreedy(10, ofSeconds(1))`
fn greedy() -> Made<Policy> {
    Ok(Policy::per_second("api", 10)?.with_algorithm(Algorithm::TokenBucket).with_burst(50))
}

// `refillIntervally(100, ofMinutes(1))`
fn intervally() -> Made<Policy> {
    Ok(Policy::per_minute("api", 100)?.with_algorithm(Algorithm::FixedWindow))
}

// `refillIntervallyAligned(..)`
fn aligned() -> Made<Policy> {
    Policy::calendar("billing", 100, Calendar::monthly())
}

// `tryConsume(5)`
async fn consume(limiter: Limiter, policy: Policy, key: Key) -> Answered<Decision> {
    Limiter::check(&limiter, key, &policy, 5).await
}

// `tryConsumeAsMuchAsPossible(100)`
async fn as_much_as_possible(limiter: Limiter, policy: Policy, key: Key) -> Answered<u64> {
    let decision = Limiter::check_up_to(&limiter, key, &policy, 100).await?;
    let charged: &PolicyDecision = &decision.policies()[0];
    Ok(charged.cost)
}

// `estimateAbilityToConsume(5)`
async fn estimate(limiter: Limiter, policy: Policy, key: Key) -> Answered<Decision> {
    Limiter::peek_all(&limiter, Check::new(key, &policy, 5)).await
}

// `asBlocking().tryConsume(5, wait)`
async fn blocking(limiter: Limiter, policy: Policy, key: Key, wait: Duration) -> Answered<Decision> {
    Limiter::acquire(&limiter, key, &policy, 5).within(wait).await
}

// `consumeIgnoringRateLimits(5)`
async fn ignoring_limits(limiter: Limiter, policy: Policy, key: Key) -> Answered<()> {
    Limiter::record(&limiter, key, &policy, 5).await
}

// `addTokens(5)`, `reset()` of a bucket
async fn add_tokens(limiter: Limiter, policy: Policy, key: Key) -> Answered<bool> {
    Limiter::credit(&limiter, &key, &policy, 5).await?;
    Limiter::reset(&limiter, &key, &policy).await
}
