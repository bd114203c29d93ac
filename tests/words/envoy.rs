//! envoyproxy/ratelimit.

use super::*;

// `domain`, `descriptors`
async fn descriptors(limiter: Limiter, per_user: Policy, per_org: Policy, user: Key, org: Key) -> Answered<Decision> {
    limiter.check_all(Check::new(user, &per_user, 1).and(org, &per_org, 1)).await
}

fn on_a_layer(layer: RateLimitLayer<PeerIp>, policy: Policy, key: ExtensionKey<u64>) -> RateLimitLayer<PeerIp> {
    layer.and(policy, key)
}

// `unit: minute`, `requests_per_unit: 60`
fn unit() -> Made<Policy> {
    let rate = "60/min";
    Policy::parse("api", rate)
}

// `hits_addend: 5`
async fn hits(layer: RateLimitLayer<PeerIp>, limiter: Limiter, policy: Policy) -> Answered<Decision> {
    let _layer = layer.with_cost(5).with_cost_fn(|parts| 1 + parts.headers.len() as u64);
    Limiter::peek(&limiter, "all", &policy).await
}

// `unlimited: true`
fn unlimited(others: Policy) -> (impl PolicySource, Policy) {
    let shadow = others.clone().with_shadow(true);
    let policies = policy::from_fn(move |parts, _key| match parts.headers.contains_key("x-internal") {
        true => Policies::unlimited(),
        false => others.clone().into(),
    });
    (policies, shadow)
}

// `shadow_mode: true`
fn shadow(policy: Policy, layer: RateLimitLayer<PeerIp>) -> (Policy, RateLimitLayer<PeerIp>) {
    (policy.with_shadow(true), layer.with_shadow(true))
}

// `quota_mode: true`
fn quota(included: Policy, credits: Policy) -> (Policy, FirstOf) {
    (included.clone().with_shadow(true), FirstOf::new([included, credits]))
}

async fn beyond_the_quota(decision: Decision) -> &'static str {
    if Decision::would_deny(&decision) { "a smaller model" } else { "the model" }
}

// near limit statistics
fn near(policy: Policy) -> Policy {
    Policy::with_near_limit(policy, 0.9)
}

// Envoy's `failure_mode_deny: true`
fn deny_without_an_answer(layer: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp> {
    layer.fail_closed()
}
