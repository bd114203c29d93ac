//! A plan for each API key.

use std::collections::HashMap;

use tollgate::{ApiKey, ConfigError, Key, Limiter, Policy, RateLimitLayer, policy};

fn limit(
    limiter: Limiter,
    api_key: ApiKey,
    plans: HashMap<Key, Policy>,
    free: Policy,
) -> Result<RateLimitLayer<ApiKey>, ConfigError> {
    let plan = policy::from_fn(move |_, key| plans.get(key).unwrap_or(&free).clone());
    RateLimitLayer::new(limiter, plan, api_key).validated()
}

#[tokio::test]
async fn a_plan_for_each_api_key() {
    let api_key = ApiKey::header("x-api-key").unwrap();
    let of = |limit| Policy::per_minute("plan", limit).unwrap();
    let plans = HashMap::from([(api_key.key_of("ann"), of(1_000))]);
    let app = crate::support::app::app(limit(crate::support::app::limiter(), api_key, plans, of(10)).unwrap());
    for (key, quota) in [("ann", "q=1000"), ("bob", "q=10")] {
        let reply = crate::support::http::get_with(&app, "/", &[("x-api-key", key)]).await;
        assert!(reply.header("ratelimit-policy").unwrap().contains(quota), "{key}");
    }
}
