//! Events as JSON, for the page's script. Times are milliseconds since the epoch by the clock of this server, and waits
//! are seconds.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tollgate::{
    Algorithm, Decision, Policy,
    decision::Source,
    observe::{Event, Fingerprint},
};

/// `None` for an event that the page does not show. `beside` is what other algorithms answer.
pub(super) fn of(event: &Event<'_>, beside: Vec<Value>) -> Option<Value> {
    let (kind, outcome, ms) = (event.name(), event.outcome(), event.elapsed().map(millis));
    let mut record = json!({ "kind": kind, "outcome": outcome, "t": now(), "ms": ms });
    match kind {
        "decision" => {
            let decision = event.decision()?;
            record["method"] = event.method().into();
            record["route"] = event.route().into();
            record["source"] = source(decision.source()).into();
            record["allowed"] = decision.is_allowed().into();
            record["policies"] = policies(event, decision);
            record["beside"] = beside.into();
        }
        "breaker_change" => record["sequence"] = event.number("sequence").into(),
        "hold_end" => {
            let (key, policy, held) = event.charges().next()?;
            record["key"] = Fingerprint::from(key).to_string().into();
            record["policy"] = policy.name().into();
            record["held"] = held.into();
            record["actual"] = event.number("actual").into();
        }
        "store_failure" => {}
        "limits_change" | "near_limit" | "refusal" | "warning" => record["text"] = event.to_string().into(),
        _ => return None,
    }
    Some(record)
}

fn policies(event: &Event<'_>, decision: &Decision) -> Value {
    let mut standings = decision.policies().iter();
    event
        .charges()
        .map(|(key, charged, cost)| {
            let mut record = policy(charged);
            record["key"] = Fingerprint::from(key).to_string().into();
            record["cost"] = cost.into();
            // Without a verdict, nothing is known of the counts.
            if let Some(standing) = standings.next() {
                record["available"] = standing.available.into();
                record["retry_after"] = standing.retry_after.map(|wait| wait.as_secs_f64()).into();
                record["reset"] = standing.reset.as_secs_f64().into();
                record["violated"] = standing.violated.into();
                record["would_deny"] = standing.would_deny.into();
                record["ban"] = standing.ban.map(|ban| ban.as_secs_f64()).into();
            }
            record
        })
        .collect()
}

pub(super) fn policy(policy: &Policy) -> Value {
    json!({
        "name": policy.name(),
        "limit": policy.capacity(),
        "window": policy.window().map(|window| window.as_secs_f64()),
        "algorithm": algorithm(policy.algorithm()),
        "holds": policy.holds().is_some(),
    })
}

/// The words of `--algorithm`.
pub(super) fn algorithm(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingWindowLog => "log",
        Algorithm::SlidingWindowCounter => "counter",
        Algorithm::FixedWindow => "fixed",
        _ => "token-bucket",
    }
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Store => "store",
        Source::DenyCache => "deny cache",
        Source::Lease => "lease",
        Source::Local => "local",
        Source::Open => "open",
        Source::Closed => "closed",
        Source::Overloaded => "overloaded",
        Source::Policy => "policy",
        _ => "queue",
    }
}

/// The time in milliseconds since the epoch.
pub(super) fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, millis)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
