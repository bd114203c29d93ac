//! express-rate-limit, express-slow-down.

use super::*;

// `rateLimit({ .. })`, `app.use(limiter)`
fn whole_router(routes: Router, policy: Policy) -> Router {
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, PeerIp::new());
    routes.layer(limit)
}

// `windowMs: 900_000`, `limit: 100`
fn window() -> Made<Policy> {
    Policy::new("api", 100, Duration::from_secs(900))
}

// `limit: (req) => ..`
fn limit_of_a_request() -> impl PolicySource {
    let (free, paid) = (minute(60), minute(6_000));
    policy::from_fn(move |parts, _key| if parts.headers.contains_key("x-paid") { paid.clone() } else { free.clone() })
}

// `app.use('/api', limiter)`
fn under_a_path(routes: Router, limit: RateLimitLayer<PeerIp>) -> Router {
    Router::new().nest("/api", routes.layer(limit))
}

// `app.post('/reset_password', limiter, ..)`
fn one_route(limit: RateLimitLayer<PeerIp>) -> Router {
    let handler = async || "sent";
    Router::new().route("/reset_password", post(handler).layer(limit))
}

// `keyGenerator`
fn keys() -> Made<(PeerIp, ClientIp, ExtensionKey<u64>, impl KeyExtractor)> {
    let tenant = key::from_fn(|parts| match parts.headers.get("x-tenant") {
        Some(tenant) => Ok(Some(Key::new(tenant))),
        None => PeerIp::new().extract(parts),
    });
    Ok((PeerIp::new(), ClientIp::behind_load_balancer(["10.0.0.0/24"])?, ExtensionKey::new(), tenant))
}

// `skip`
fn skip(layer: RateLimitLayer<PeerIp>) -> (RateLimitLayer<PeerIp>, ClientIp, impl KeyExtractor) {
    let users = key::from_fn(|parts| if parts.method == "OPTIONS" { None } else { Some(Key::from("all")) });
    (layer.route("/healthz", Route::exempt()), ClientIp::peer().exempt(["192.168.0.56"]), users)
}

// `skipSuccessfulRequests`, `skipFailedRequests`, `requestWasSuccessful`
fn failures_only(limiter: Limiter, policy: Policy) -> RateLimitLayer<PeerIp> {
    let policy = policy.with_holds(HoldSettings::new());
    RateLimitLayer::new(limiter, policy, PeerIp::new()).with_settlement(|response| match response.status.is_success() {
        true => Settlement::Nothing,
        false => Settlement::Held,
    })
}

// `passOnStoreError: true`
fn store_errors(layer: RateLimitLayer<PeerIp>) -> [RateLimitLayer<PeerIp>; 2] {
    [layer.clone().fail_open(), layer.fail_closed()]
}

// `handler`, `message`, `statusCode`
fn refusals(layer: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp, impl Fn(&Parts, &Denial) -> Response<String>> {
    let _status = ProblemJson::default().with_quota_status(StatusCode::SERVICE_UNAVAILABLE);
    layer.with_rejection(|_: &Parts, denial: &Denial| Response::new(denial.to_string()))
}

// `standardHeaders: 'draft-6'`, `legacyHeaders: true`
fn fields(layer: RateLimitLayer<PeerIp>) -> [RateLimitLayer<PeerIp>; 2] {
    [HeaderStyle::Draft06, HeaderStyle::XRateLimitEpoch].map(|style| layer.clone().with_headers(style))
}

// `standardHeaders: 'draft-8'`, `standardHeaders: 'draft-7'`
fn newer_fields(layer: RateLimitLayer<PeerIp>) -> [RateLimitLayer<PeerIp>; 2] {
    [HeaderStyle::Draft11, HeaderStyle::Draft07].map(|style| layer.clone().with_headers(style))
}

// `legacyHeaders: false`
fn no_old_fields(layer: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp> {
    layer // without `.with_headers(..)`, no `X-RateLimit-*` field is sent
}

// `ipv6Subnet: 56`
fn by_56() -> ClientIp {
    ClientIp::peer().with_ipv6_prefix(56)
}

// `trust proxy` of Express
fn trusted() -> Made<[ClientIp; 2]> {
    Ok([ClientIp::behind_load_balancer(["10.0.0.0/24"])?, ClientIp::x_forwarded_for(1)?])
}

// `store`
fn stores(url: &str) -> Made<(MemoryStore, RedisStore)> {
    Ok((MemoryStore::new(), RedisStore::open(url)?))
}

// `prefix: 'rl:'` of rate-limit-redis
fn prefixed(url: &str) -> Made<RedisStore> {
    RedisStore::builder().prefix("rl:").open(url)
}

// `limit: 0`
fn nothing_passes() -> Made<Policy> {
    Policy::blocked("suspended")
}

// `req.rateLimit`, `requestPropertyName`
async fn handler(decision: Decision) -> String {
    format!("{:?} left", decision.available())
}

// `identifier`
fn named(limit: u64, window: Duration) -> Made<Policy> {
    Policy::new("api", limit, window)
}

// `validate`
fn valid(layer: RateLimitLayer<PeerIp>) -> Made<RateLimitLayer<PeerIp>> {
    layer.validated()
}

// `resetKey(key)`, `getKey(key)`
async fn reset_and_look(limiter: Limiter, policy: Policy, address: IpAddr) -> Answered<Decision> {
    let key = PeerIp::new().key_of(address);
    Limiter::reset(&limiter, &key, &policy).await?;
    Limiter::peek(&limiter, &key, &policy).await
}

// `slowDown({ delayAfter, delayMs })`
fn slow_down(limiter: Limiter, policy: Policy, delay_after: u64) -> RateLimitLayer<PeerIp> {
    let policy = policy.with_algorithm(Algorithm::TokenBucket).with_burst(delay_after);
    RateLimitLayer::new(limiter, policy, PeerIp::new()).wait_up_to(Duration::from_millis(500))
}
