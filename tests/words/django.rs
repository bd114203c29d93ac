//! django-ratelimit.

use super::*;

// `@ratelimit(key="ip", rate="5/m")`
fn five_a_minute(limiter: Limiter) -> Made<RateLimitLayer<PeerIp>> {
    Ok(RateLimitLayer::new(limiter, Policy::parse("login", "5/m")?, PeerIp::new()))
}

// `key="header:x-api-key"`, `key="user_or_ip"`
fn keys() -> Made<(ApiKey, impl KeyExtractor)> {
    let user_or_ip = key::from_fn(|parts| match parts.extensions.get::<u64>() {
        Some(user) => Ok(Some(Key::join([Key::from("user"), Key::from(*user)]))),
        None => PeerIp::new().extract(parts),
    });
    Ok((ApiKey::header("x-api-key")?, user_or_ip))
}

// `group`
fn group() -> Made<Policy> {
    Policy::per_minute("login", 5)
}

// `method=UNSAFE`
fn unsafe_methods(limit: RateLimitLayer<PeerIp>) -> (RateLimitLayer<PeerIp>, Router) {
    async fn handler() {}
    let router = Router::new().route("/", post(handler).layer(limit.clone()));
    (limit.route("POST /login", Route::new().cost(10)), router) // a key of `None` for all others
}

// `block=False`, `request.limited`
async fn limited(decision: Decision) -> &'static str {
    if Decision::would_deny(&decision) { "a captcha" } else { "the form" }
}

fn not_blocked(policy: Policy) -> Policy {
    policy.with_shadow(true)
}

// `rate="0/s"`, `rate=None`
fn suspended() -> Made<impl PolicySource> {
    let (free, suspended) = (minute(5), Policy::blocked("suspended")?);
    Ok(policy::from_fn(move |parts, _key| match parts.headers.get("x-plan").map(|plan| plan.as_bytes()) {
        Some(b"suspended") => suspended.clone().into(),
        Some(b"internal") => Policies::unlimited(),
        _ => free.clone().into(),
    }))
}

// `RATELIMIT_FAIL_OPEN = False`
fn fail_closed(limit: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp> {
    limit.fail_closed()
}

// `RATELIMIT_IPV4_MASK = 24`, `RATELIMIT_IPV6_MASK = 56`
fn masks() -> ClientIp {
    ClientIp::peer().with_ipv4_prefix(24).with_ipv6_prefix(56)
}
