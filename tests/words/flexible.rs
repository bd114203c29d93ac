//! rate-limiter-flexible.

use super::*;

// `new RateLimiterRedis({ storeClient, .. })`, `new RateLimiterMemory(..)`
fn limiters(url: &str) -> Made<[Limiter; 2]> {
    Ok([Limiter::new(RedisStore::open(url)?), Limiter::new(MemoryStore::new())])
}

// a middleware around `consume(req.ip)`
fn middleware(limiter: Limiter, policy: Policy) -> RateLimitLayer<PeerIp> {
    RateLimitLayer::new(limiter, policy, PeerIp::new())
}

// `points`, `duration`, `keyPrefix`
fn points() -> Made<(Policy, RedisStoreBuilder)> {
    let store = RedisStoreBuilder::prefix(RedisStore::builder(), "shop:");
    Ok((Policy::new("api", 5, Duration::from_secs(1))?, store))
}

// `duration: 0`
fn nearly_for_ever() -> Made<Policy> {
    Policy::new("trial", 5, Policy::MAX_WINDOW)
}

// `consume(key, 2)`
async fn consume(limiter: Limiter, policy: Policy, key: Key) -> Answered<bool> {
    let policy = policy.with_denials_counted(true);
    Ok(Limiter::check(&limiter, key, &policy, 2).await?.is_allowed())
}

// `remainingPoints`, `consumedPoints`, `msBeforeNext`
fn points_of(decision: &Decision) -> (u64, u64, Duration, Option<Duration>) {
    let PolicyDecision { available, reset, policy, .. } = &decision.policies()[0];
    (*available, Policy::capacity(policy) - available, *reset, Decision::retry_after(decision))
}

// `X-RateLimit-Limit` and others, set by hand
fn fields(layer: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp> {
    layer.with_headers(HeaderStyle::XRateLimitEpoch)
}

// `blockDuration: 600`
async fn block_after_a_denial(limiter: Limiter, policy: Policy, key: Key) -> Answered<bool> {
    let policy = policy.ban_after(1, Duration::from_secs(600));
    let state = limiter.peek(key, &policy).await?;
    Ok(state.policies().iter().any(|PolicyDecision { ban, .. }| ban.is_some()))
}

// a longer `block` with each repetition, in the service's code
fn longer_blocks(policy: Policy) -> Policy {
    policy.ban_after(5, Duration::from_secs(60)).growing_to(Duration::from_secs(86_400))
}

// `block(key, 600)`
async fn block(limiter: Limiter, policy: Policy, key: Key) -> Answered<bool> {
    Limiter::ban(&limiter, &key, &policy, Duration::from_secs(600)).await?;
    Limiter::unban(&limiter, &key, &policy).await
}

// `penalty(key, 3)`, `reward(key, 3)`
async fn penalty_and_reward(limiter: Limiter, policy: Policy, key: Key) -> Answered<u64> {
    Limiter::record(&limiter, &key, &policy, 3).await?;
    Limiter::credit(&limiter, &key, &policy, 3).await
}

// `set(key, 3, 600)`
async fn set(limiter: Limiter, policy: Policy, key: Key) -> Answered<()> {
    Limiter::reset(&limiter, &key, &policy).await?;
    Limiter::record(&limiter, key, &policy, 3).await.map(drop)
}

// `insuranceLimiter`
async fn insurance(limiter: Limiter, policy: Policy, memory: MemoryStore, key: Key) -> Answered<bool> {
    let limiter = Limiter::with_local_fallback(limiter, memory, 8);
    let _layer = RateLimitLayer::new(limiter.clone(), policy.clone(), PeerIp::new()).fail_local();
    Ok(Limiter::check(&limiter, key, &policy, 1).fail_local().await?.is_allowed())
}

// `inMemoryBlockOnConsumed`, `inMemoryBlockDuration`
fn denials_from_memory() -> RedisStoreBuilder {
    RedisStoreBuilder::deny_cache(RedisStore::builder(), true)
}

// `RateLimiterUnion`
async fn union(limiter: Limiter, second: Policy, hour: Policy, key: &str) -> Answered<Decision> {
    limiter.check_all(Check::new(key, &second, 1).and(key, &hour, 1)).await
}

// `BurstyRateLimiter`
fn bursty(rate: Policy, burst: Policy) -> FirstOf {
    FirstOf::new([rate, burst])
}

// `RateLimiterQueue`, `removeTokens(1)`
async fn queue(limiter: Limiter, policy: Policy, key: Key, wait: Duration) -> Answered<Decision> {
    Limiter::acquire(&limiter, key, &policy, 1).within(wait).await
}

// `maxQueueSize: 100`, `getTokensRemaining()`
async fn bounded_queue(limiter: Limiter, policy: Policy, key: Key) -> Answered<Option<u64>> {
    let limiter = Limiter::with_max_waiters(limiter, 100, 10_000);
    Ok(Limiter::peek(&limiter, key, &policy).await?.available())
}

// `RLWrapperTimeouts`, `rejectIfRedisNotReady`
fn answers_in_time(longest: Duration) -> RedisStoreBuilder {
    RedisStoreBuilder::deadline(RedisStore::builder(), longest)
}

// `execEvenly: true`
fn evenly(limiter: Limiter, points: u64, duration: Duration) -> Made<RateLimitLayer<PeerIp>> {
    let policy = Policy::new("api", points, duration)?.with_algorithm(Algorithm::TokenBucket).with_burst(1);
    let wait = duration.mul_f64((points - 1) as f64 / points as f64);
    Ok(RateLimitLayer::new(limiter, policy, PeerIp::new()).wait_up_to(wait))
}

// `RLWrapperBlackAndWhite`
fn black_and_white() -> (ClientIp, KeyError) {
    let client = ClientIp::deny(ClientIp::peer(), ["198.51.100.0/24"]);
    (ClientIp::exempt(client, ["10.0.0.0/8"]), KeyError::denied())
}

// `get(key)`, `delete(key)`
async fn get_and_delete(limiter: Limiter, policy: Policy, key: Key) -> Answered<bool> {
    let _ = Limiter::peek(&limiter, &key, &policy).await?;
    Limiter::reset(&limiter, &key, &policy).await
}
