//! Tokens of a model: an estimate is held, and the handler charges what the answer has used.

use axum::{Router, routing::post};
use http::StatusCode;
use tollgate::middleware::{Bill, Settlement};
use tollgate::{ApiKey, ConfigError, Limiter, Policy, RateLimitLayer, policy::HoldSettings};

struct Limits {
    completions: RateLimitLayer<ApiKey>,
    rest: RateLimitLayer<ApiKey>,
}

fn limits(limiter: Limiter) -> Result<Limits, ConfigError> {
    let tokens = Policy::per_minute("tokens", 100_000)?.with_holds(HoldSettings::new());
    let completions = RateLimitLayer::new(limiter.clone(), tokens, ApiKey::bearer())
        .with_cost(1_500)
        .with_settlement(|response| match response.status {
            StatusCode::OK => Settlement::AtEnd,
            _ => Settlement::Nothing,
        })
        .validated()?;
    let rest = RateLimitLayer::new(limiter, Policy::per_minute("requests", 60)?, ApiKey::bearer());
    Ok(Limits { completions, rest })
}

async fn complete(bill: Bill, prompt: String) -> String {
    bill.set_cost(1_120); // the usage that the model reports
    prompt
}

#[tokio::test]
async fn tokens_are_held_and_then_charged_as_they_were_used() {
    let Limits { completions, rest } = limits(crate::support::app::limiter()).unwrap();
    let app = Router::new()
        .route("/complete", post(complete).layer(completions))
        .merge(Router::new().route("/models", post(|| async {})).layer(rest));
    for (path, left) in [("/complete", "r=98500"), ("/complete", "r=97380"), ("/models", "r=59")] {
        let request = crate::support::http::request(http::Method::POST, path, &[("authorization", "Bearer a")]);
        let reply = crate::support::http::send(&app, request).await;
        assert!(reply.header("ratelimit").unwrap().contains(left), "{path}: {:?}", reply.header("ratelimit"));
    }
}
