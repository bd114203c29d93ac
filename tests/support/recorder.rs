//! An observer that records every event.

use std::sync::{Arc, Mutex};
use std::{fmt::Debug, mem, str::FromStr};

use tollgate::observe::{Event, Fingerprint, Observer, Warning};
use tollgate::{ErrorKind, Policy, decision::Source};

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
    /// The `Debug` output of all events, and the `Display` output of all but batches.
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
        if event.name() != "batch" {
            seen.debug += &format!("{event}\n");
        }
        let name = |policy: &Policy| policy.name().to_owned();
        let method_and_route = event.method().map(|method| request(method, event.route()));
        seen.requests.extend(method_and_route);
        seen.warnings.extend(event.warning().cloned());
        if let Some(decision) = event.decision() {
            let counted: Vec<_> = event.charges().enumerate().map(|(n, _)| decision.policies().get(n)).collect();
            seen.would_deny.push(counted.iter().map(|counted| counted.is_some_and(|one| one.would_deny)).collect());
            let violated = counted.iter().map(|counted| counted.is_some_and(|one| one.violated));
            let charges = event.charges().zip(violated);
            seen.decisions.push(RecordedDecision {
                outcome: event.outcome(),
                source: decision.source(),
                charges: charges.map(|((_, policy, cost), violated)| (name(policy), cost, violated)).collect(),
                fingerprints: event.charges().map(|(key, ..)| key.into()).collect(),
            });
        }
        if let Some(error) = event.error() {
            let policies = event.charges().map(|(_, policy, _)| name(policy)).collect();
            seen.failures.push((error.kind(), policies));
        }
        for (_, policy, units) in event.charges() {
            match event.name() {
                "near_limit" => {
                    assert_eq!(event.number("spent"), Some(units));
                    seen.near.push((name(policy), units, policy.capacity()));
                }
                "hold_end" => {
                    assert_eq!(event.number("held"), Some(units));
                    seen.holds.push((name(policy), units, event.number("actual").unwrap(), event.outcome()));
                }
                _ => {}
            }
        }
        seen.other(event);
    }
}

impl RecordedEvents {
    fn other(&mut self, event: &Event<'_>) {
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
            "refusal" => self.refusals.push(event.outcome()),
            "would_refuse" => self.would_refuse.push(event.outcome()),
            "reset" => self.resets.push((values(event, "policy").remove(0), result(event, "found"))),
            _ => {}
        }
    }
}

/// What an event with an outcome of `ok` has for `name`; `None` with an outcome of `error`, whose line has the error.
fn result<T: FromStr<Err: Debug>>(event: &Event<'_>, name: &str) -> Option<T> {
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
