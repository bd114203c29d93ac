//! governor and tower_governor.

use super::*;

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
