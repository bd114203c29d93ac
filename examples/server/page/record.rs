//! Events as JSON, for the page's script. Times are milliseconds since the epoch by the clock of this server, and waits
//! are seconds.

use std::time::Duration;

use tollgate::clock::{Clock, SystemClock};
use tollgate::observe::{Event, Fingerprint};
use tollgate::{Algorithm, Decision, Policy, decision::Source};

use crate::page::json::Fields;

/// What the page shows of an event beside the event itself.
pub(super) struct Seen<'a> {
    pub(super) at_us: u64,
    /// The keys of its charges.
    pub(super) keys: &'a [Fingerprint],
    /// What other algorithms answer.
    pub(super) beside: &'a [Beside],
}

/// The answer of an algorithm.
pub(super) struct Beside {
    pub(super) algorithm: Algorithm,
    pub(super) is_allowed: bool,
    pub(super) retry_after: Option<Duration>,
}

/// Whether the page shows the event.
pub(super) fn is_shown(event: &Event<'_>) -> bool {
    matches!(
        event.name(),
        "breaker_change"
            | "decision"
            | "hold_end"
            | "limits_change"
            | "near_limit"
            | "refusal"
            | "store_failure"
            | "warning"
    )
}

/// Writes the fields of an event.
pub(super) fn write(fields: &mut Fields<'_>, event: &Event<'_>, seen: &Seen<'_>) {
    fields.word("kind", event.name());
    fields.word("outcome", event.outcome());
    fields.value("t", millis(seen.at_us));
    fields.optional("ms", event.elapsed().map(|time| time.as_secs_f64() * 1_000.0));
    match event.name() {
        "decision" => {
            if let Some(decision) = event.decision() {
                write_decision(fields, event, decision, seen);
            }
        }
        "breaker_change" => fields.optional("sequence", event.number("sequence")),
        "hold_end" => {
            if let (Some((_, policy, held)), Some(key)) = (event.charges().next(), seen.keys.first()) {
                fields.word("key", key);
                fields.text("policy", policy.name());
                fields.value("held", held);
                fields.optional("actual", event.number("actual"));
            }
        }
        "store_failure" => {}
        _ => fields.text("text", event.to_string().as_str()),
    }
}

fn write_decision(fields: &mut Fields<'_>, event: &Event<'_>, decision: &Decision, seen: &Seen<'_>) {
    fields.text("method", event.method());
    fields.text("route", event.route());
    fields.word("source", source(decision.source()));
    fields.value("allowed", decision.is_allowed());
    let mut standings = decision.policies().iter();
    fields.objects("policies", event.charges().zip(seen.keys), |fields, ((_, policy, cost), key)| {
        write_policy(fields, policy);
        fields.word("key", key);
        fields.value("cost", cost);
        // Without a verdict, nothing is known of the counts.
        if let Some(standing) = standings.next() {
            fields.value("available", standing.available);
            fields.optional("retry_after", standing.retry_after.map(|wait| wait.as_secs_f64()));
            fields.value("reset", standing.reset.as_secs_f64());
            fields.value("violated", standing.violated);
            fields.value("would_deny", standing.would_deny);
            fields.optional("ban", standing.ban.map(|ban| ban.as_secs_f64()));
        }
    });
    fields.objects("beside", seen.beside, |fields, beside| {
        fields.word("algorithm", algorithm(beside.algorithm));
        fields.value("allowed", beside.is_allowed);
        fields.optional("retry_after", beside.retry_after.map(|wait| wait.as_secs_f64()));
    });
}

pub(super) fn write_policy(fields: &mut Fields<'_>, policy: &Policy) {
    fields.text("name", policy.name());
    fields.value("limit", policy.capacity());
    fields.value("units", policy.limit());
    fields.optional("window", policy.window().map(|window| window.as_secs_f64()));
    fields.word("algorithm", algorithm(policy.algorithm()));
    fields.value("holds", policy.holds().is_some());
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

pub(super) fn source(source: Source) -> &'static str {
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
    millis(SystemClock.now_us())
}

pub(super) fn millis(us: u64) -> f64 {
    us as f64 / 1_000.0
}
