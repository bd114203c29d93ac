//! What an API key has left.

use std::time::Duration;

use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::{Extension, extract::State, response::IntoResponse};
use serde_json::{Value, json};
use tollgate::{Limiter, decision::PolicyDecision};

use crate::account::{KeyName, Organisation, Team};
use crate::limits::Limits;

/// `GET /usage`: each limit of the key, of its team and of its organisation. Peeks charge nothing.
pub(crate) async fn show(
    State((limiter, limits)): State<(Limiter, Limits)>,
    Extension(name): Extension<KeyName>,
    Extension(team): Extension<Team>,
    Extension(organisation): Extension<Organisation>,
) -> Result<impl IntoResponse, StatusCode> {
    let mut shown = Vec::new();
    for (payer, key, policy) in limits.of_account((name, team, organisation)) {
        let decision = limiter.peek(key, policy).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let exhausted_in = decision.exhausted_in();
        shown.extend(decision.policies().iter().map(|standing| describe(payer, standing, exhausted_in)));
    }
    let body = json!({ "key": name.0, "team": team.0, "organisation": organisation.0, "limits": shown });
    Ok(([(CONTENT_TYPE, "application/json")], body.to_string()))
}

/// Times are seconds. What running requests hold counts as spent.
fn describe(payer: &str, standing: &PolicyDecision, exhausted_in: Option<Duration>) -> Value {
    json!({
        "of": payer,
        "name": standing.policy.name(),
        "limit": standing.policy.limit(),
        "available": standing.available,
        "reset": standing.reset.as_secs(),
        // When nothing is left at the pace so far; null if that never comes.
        "exhausted_in": exhausted_in.map(|time| time.as_secs()),
    })
}
