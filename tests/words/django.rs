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
fn suspended() -> impl KeyExtractor {
    key::from_fn(|parts| match parts.headers.get("x-plan").map(|plan| plan.as_bytes()) {
        Some(b"suspended") => Err(KeyError::denied()),
        Some(b"internal") => Ok(None),
        _ => PeerIp::new().extract(parts),
    })
}

// `RATELIMIT_FAIL_OPEN = False`
fn fail_closed(limit: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp> {
    limit.fail_closed()
}

// `RATELIMIT_IPV6_MASK = 56`
fn masks() -> (ClientIp, impl KeyExtractor) {
    let client = ClientIp::peer();
    let by_24 = key::from_fn(move |parts| match ClientIp::resolve(&client, parts)? {
        IpAddr::V4(address) => Ok::<_, KeyError>(Key::new(&address.octets()[..3])),
        address => Ok(PeerIp::new().key_of(address)),
    });
    (ClientIp::peer().with_ipv6_prefix(56), by_24)
}
