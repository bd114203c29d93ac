//! redis-cell and redis_rate.

use super::*;

// `CL.THROTTLE key 15 30 60 1`
fn throttle() -> Made<Policy> {
    Ok(Policy::per_minute("api", 30)?.with_algorithm(Algorithm::TokenBucket).with_burst(16))
}

// the five numbers of its reply
fn reply(decision: &Decision) -> (bool, u64, Option<u64>, Option<Duration>, Duration) {
    let counted: &PolicyDecision = &decision.policies()[0];
    (
        Decision::is_allowed(decision),
        Policy::capacity(&counted.policy),
        Decision::available(decision),
        Decision::retry_after(decision),
        counted.reset,
    )
}

// `Allow(ctx, key, redis_rate.PerSecond(10))`
async fn allow(limiter: Limiter, key: Key) -> Answered<Decision> {
    let policy = Policy::per_second("api", 10)?.with_algorithm(Algorithm::TokenBucket);
    Limiter::check(&limiter, key, &policy, 1).await
}

// `AllowN(.., n)`, `AllowAtMost(.., n)`
async fn allow_at_most(limiter: Limiter, policy: Policy, key: Key, n: u64) -> Answered<[Decision; 2]> {
    let all_or_nothing = Limiter::check(&limiter, &key, &policy, n).await?;
    Ok([all_or_nothing, Limiter::check_up_to(&limiter, &key, &policy, n).await?])
}

// `limiter.Reset(ctx, key)`
async fn reset(limiter: Limiter, policy: Policy, key: Key) -> Answered<bool> {
    Limiter::reset(&limiter, key, &policy).await
}
