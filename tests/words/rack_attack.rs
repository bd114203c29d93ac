//! rack-attack.

use super::*;

// `throttle("req/ip", limit: 300, period: 5.minutes)`
fn throttle() -> Made<Policy> {
    Policy::parse("req/ip", "300/5m")
}

// `safelist_ip(..)`, `blocklist_ip(..)`
fn lists() -> ClientIp {
    let client = ClientIp::exempt(ClientIp::peer(), ["10.0.0.0/8"]);
    ClientIp::deny(client, ["198.51.100.0/24"])
}

// `Allow2Ban.filter(id, maxretry: 20, findtime: 1.minute, bantime: 1.hour)`
fn allow_to_ban() -> Made<Policy> {
    Ok(Policy::per_minute("logins", 20)?.ban_after(1, Duration::from_secs(3_600)))
}

// `Fail2Ban.filter(..)`
async fn bad_request(limiter: Limiter, policy: Policy, client: Key) -> Answered<Decision> {
    Limiter::check(&limiter, client, &policy.ban_after(1, Duration::from_secs(3_600)), 1).await
}

// exponential backoff: a throttle for each level
fn backoff(policy: Policy) -> Policy {
    policy.ban_after(1, Duration::from_secs(8)).growing_to(Duration::from_secs(86_400))
}

// `track("logins")`
fn track(policy: Policy) -> Policy {
    policy.with_shadow(true)
}

// `throttled_responder = ..`
fn responder(limit: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp, impl Fn(&Parts, &Denial) -> Response<String>> {
    limit.with_rejection(|_: &Parts, denial: &Denial| Response::new(denial.to_string()))
}

// `Rack::Attack.enabled = false`, `reset!`
async fn disabled(router: Router, memory: MemoryStore, redis: RedisStore) -> Answered<Router> {
    let off: Option<RateLimitLayer<PeerIp>> = None;
    MemoryStore::clear(&memory);
    RedisStore::clear(&redis).await?;
    Ok(router.layer(option_layer(off))) // or `option_layer(None)` with its type
}
