//! A limit in a handler: `?` limits, always.

use axum::extract::State;
use tollgate::{Limiter, Policy, rejection::Denial};

#[derive(Clone)]
struct Exports {
    limiter: Limiter,
    daily: Policy,
    at_once: Policy,
}

async fn export(State(exports): State<Exports>) -> Result<&'static str, Denial> {
    let Exports { limiter, daily, at_once } = exports;
    limiter.check("user:17", &daily, 1).await?.into_result()?;
    let slot = limiter.hold("user:17", &at_once, 1).await?.into_result()?;
    let report = "a,b,c";
    drop(slot);
    Ok(report)
}

#[tokio::test]
async fn a_handler_limits_what_it_does() {
    let daily = Policy::per_day("exports", 2).unwrap();
    let at_once = Policy::concurrent("exports-at-once", 3).unwrap();
    let exports = Exports { limiter: crate::support::app::limiter(), daily, at_once };
    let app = axum::Router::new().route("/", axum::routing::get(export)).with_state(exports);
    for status in [200, 200, 429] {
        assert_eq!(crate::support::http::get(&app, "/").await.status, status);
    }
}
