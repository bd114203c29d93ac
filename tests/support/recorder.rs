//! An observer that records every event.

use std::{
    fmt::Debug,
    mem,
    str::FromStr,
    sync::{Arc, Mutex},
};

use tollgate::{
    ErrorKind,
    decision::Source,
    observe::{Event, Fingerprint, Observer, OtherEvent, Warning},
};

use super::observed::{Batch, BreakerChange, values};

/// An observer that records every event; clones share the record.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<RecordedEvents>>);

#[derive(Default)]
pub(crate) struct RecordedEvents {
    pub(crate) decisions: Vec<RecordedDecision>,
    pub(crate) failures: Vec<(ErrorKind, Vec<String>)>,
    pub(crate) batches: Vec<Batch>,
    pub(crate) changes: Vec<BreakerChange>,
    pub(crate) refusals: Vec<&'static str>,
    pub(crate) exempt: Vec<&'static str>,
    /// The method and the route of each request of a decision or a refusal: `GET /users/{id}`.
    pub(crate) requests: Vec<String>,
    /// For each charge of each decision, whether its shadow policy would deny it.
    pub(crate) would_deny: Vec<Vec<bool>>,
    pub(crate) would_refuse: Vec<&'static str>,
    /// The name of the policy, the spent units and the limit.
    pub(crate) near: Vec<(String, u64, u64)>,
    /// The name and cost of each charge.
    pub(crate) abandoned: Vec<Vec<(String, u64)>>,
    /// The name of the policy, the held units, the units to charge, and the end.
    pub(crate) holds: Vec<(String, u64, u64, &'static str)>,
    /// The name of the policy, and whether there was anything to forget unless the reset failed.
    pub(crate) resets: Vec<(String, Option<bool>)>,
    /// The name of the change, and what it has changed unless it failed.
    pub(crate) by_hand: Vec<(String, Option<u64>)>,
    pub(crate) warnings: Vec<Warning>,
    /// The `Debug` output of all events, and the `Display` output of those that have one.
    pub(crate) debug: String,
}

#[derive(Debug, PartialEq)]
pub(crate) struct RecordedDecision {
    pub(crate) outcome: &'static str,
    pub(crate) source: Source,
    /// The name, the cost, and whether the policy is violated.
    pub(crate) charges: Vec<(String, u64, bool)>,
    pub(crate) fingerprints: Vec<Fingerprint>,
}

impl Recorder {
    /// Removes and returns the events since the last call.
    pub(crate) fn take(&self) -> RecordedEvents {
        mem::take(&mut *self.0.lock().unwrap())
    }

    /// Removes all events and returns the outcome and source of each decision.
    pub(crate) fn outcomes(&self) -> Vec<(&'static str, Source)> {
        self.take().decisions.iter().map(|decision| (decision.outcome, decision.source)).collect()
    }
}

impl Observer for Recorder {
    fn on_event(&self, event: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{event:?}\n");
        seen.batches.extend(Batch::of(event));
        seen.changes.extend(BreakerChange::of(event));
        match event {
            Event::Decision(decided) => {
                seen.requests.extend(decided.method.map(|method| request(method, decided.route)));
                seen.would_deny.push(decided.charges().map(|charge| charge.would_deny).collect());
                seen.decisions.push(RecordedDecision {
                    outcome: decided.outcome(),
                    source: decided.decision.source(),
                    charges: decided
                        .charges()
                        .map(|charge| (charge.policy.name().to_owned(), charge.cost, charge.violated))
                        .collect(),
                    fingerprints: decided.charges().map(|charge| charge.key.into()).collect(),
                });
            }
            Event::StoreFailure(failure) => {
                let policies = failure.charges().map(|charge| charge.policy.name().to_owned()).collect();
                seen.failures.push((failure.error.kind(), policies));
            }
            Event::Refusal(refusal) => {
                seen.debug += &format!("{refusal}\n");
                seen.requests.push(request(refusal.method, refusal.route));
                seen.refusals.push(refusal.cause());
            }
            Event::WouldRefuse(refusal) => {
                seen.debug += &format!("{refusal}\n");
                seen.requests.push(request(refusal.method, refusal.route));
                seen.would_refuse.push(refusal.cause());
            }
            Event::NearLimit { policy, spent, .. } => {
                seen.near.push((policy.name().to_owned(), *spent, policy.capacity()));
            }
            Event::HoldEnd { policy, held, actual, end, .. } => {
                seen.holds.push((policy.name().to_owned(), *held, *actual, *end));
            }
            Event::Warning(warning) => {
                seen.debug += &format!("{warning}\n");
                seen.warnings.push(warning.clone());
            }
            Event::Other(other) => {
                seen.debug += &format!("{other}\n");
                seen.other(other);
            }
            _ => {}
        }
    }
}

impl RecordedEvents {
    fn other(&mut self, event: &OtherEvent<'_>) {
        match event.name() {
            "abandonment" => {
                let costs = values(event, "cost").into_iter().map(|cost| cost.parse().unwrap());
                self.abandoned.push(values(event, "policy").into_iter().zip(costs).collect());
            }
            "count_change" => {
                // `Ban(60s)`, `Unban`, `Record(7)` or `Credit(9)`.
                let [change] = &values(event, "change")[..] else { panic!("{event}") };
                let change = change.split('(').next().unwrap().to_lowercase();
                self.by_hand.push((change, result(event, "changed")));
            }
            "exemption" => self.exempt.push(event.outcome()),
            "reset" => self.resets.push((values(event, "policy").remove(0), result(event, "found"))),
            _ => {}
        }
    }
}

/// What an event with an outcome of `ok` has for `name`; `None` with an outcome of `error`, whose line has the error.
fn result<T: FromStr<Err: Debug>>(event: &OtherEvent<'_>, name: &str) -> Option<T> {
    let [values, errors] = [name, "error"].map(|name| values(event, name));
    assert_eq!(
        (event.outcome() == "ok", event.outcome() == "error"),
        (values.len() == 1, errors.len() == 1),
        "{event}"
    );
    values.first().map(|value| value.parse().unwrap())
}

fn request(method: &str, route: Option<&str>) -> String {
    format!("{method} {}", route.unwrap_or("unmatched"))
}

/// Asserts that the warnings have these causes, in this order, and that the text of each contains a word.
#[track_caller]
pub(crate) fn assert_warnings(warnings: &[Warning], expected: &[(&str, &str)]) {
    let causes: Vec<_> = warnings.iter().map(Warning::cause).collect();
    assert_eq!(causes, expected.iter().map(|(cause, _)| *cause).collect::<Vec<_>>(), "{warnings:#?}");
    for (warning, (_, word)) in warnings.iter().zip(expected) {
        assert!(warning.to_string().contains(word), "{word}: {warning}");
    }
}
