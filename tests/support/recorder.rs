//! An observer that records every event.

use std::{
    mem,
    sync::{Arc, Mutex},
};

use tollgate::{
    ErrorKind,
    decision::Source,
    observe::{
        Abandoned, Batch, BreakerChange, CountChanged, Decided, Exempt, Fingerprint, HoldEnded, NearLimit,
        ObservedRequest, Observer, Refused, Reset, StoreFailure, Warning,
    },
};

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
    pub(crate) near: Vec<(String, u32, u32)>,
    /// The name and cost of each charge.
    pub(crate) abandoned: Vec<Vec<(String, u32)>>,
    /// The name of the policy, the held units, the units to charge, and the end.
    pub(crate) holds: Vec<(String, u32, u32, &'static str)>,
    /// The name of the policy, and the result of a reset that succeeded.
    pub(crate) resets: Vec<(String, Option<bool>)>,
    pub(crate) by_hand: Vec<(&'static str, Option<u32>)>,
    pub(crate) warnings: Vec<Warning>,
    /// The `Debug` output of all events.
    pub(crate) debug: String,
}

#[derive(Debug, PartialEq)]
pub(crate) struct RecordedDecision {
    pub(crate) outcome: &'static str,
    pub(crate) source: Source,
    /// The name, the cost, and whether the policy is violated.
    pub(crate) charges: Vec<(String, u32, bool)>,
    pub(crate) fingerprints: Vec<Fingerprint>,
    pub(crate) fallback_admit: bool,
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
    fn on_decision(&self, decided: &Decided<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{decided:?}\n");
        seen.requests.extend(decided.request.map(request));
        seen.would_deny.push(decided.charges().map(|charge| charge.would_deny).collect());
        seen.decisions.push(RecordedDecision {
            outcome: decided.outcome(),
            source: decided.decision.source(),
            charges: decided
                .charges()
                .map(|charge| (charge.policy.name().to_owned(), charge.cost, charge.violated))
                .collect(),
            fingerprints: decided.charges().map(|charge| charge.fingerprint()).collect(),
            fallback_admit: decided.is_fallback_admit(),
        });
    }

    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{failure:?}\n");
        let policies = failure.charges().map(|charge| charge.policy.name().to_owned()).collect();
        seen.failures.push((failure.error.kind(), policies));
    }

    fn on_batch(&self, batch: &Batch) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{batch:?}\n");
        seen.batches.push(*batch);
    }

    fn on_breaker_change(&self, change: &BreakerChange) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{change:?}\n");
        seen.changes.push(*change);
    }

    fn on_refusal(&self, refused: &Refused<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{refused:?} {refused}\n");
        seen.requests.push(request(refused.request));
        seen.refusals.push(refused.cause());
    }

    fn on_would_refuse(&self, refused: &Refused<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{refused:?} {refused}\n");
        seen.requests.push(request(refused.request));
        seen.would_refuse.push(refused.cause());
    }

    fn on_near_limit(&self, near: &NearLimit<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{near:?}\n");
        seen.near.push((near.policy.name().to_owned(), near.spent, near.limit));
    }

    fn on_exempt(&self, exempt: &Exempt) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{exempt:?}\n");
        seen.exempt.push(exempt.cause.as_str());
    }

    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{abandoned:?}\n");
        let charges = abandoned.charges().map(|charge| (charge.policy.name().to_owned(), charge.cost)).collect();
        seen.abandoned.push(charges);
    }

    fn on_hold_ended(&self, ended: &HoldEnded<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{ended:?}\n");
        seen.holds.push((ended.policy.name().to_owned(), ended.held, ended.actual, ended.end.as_str()));
    }

    fn on_reset(&self, reset: &Reset<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{reset:?}\n");
        seen.resets.push((reset.policy.name().to_owned(), reset.found));
    }

    fn on_count_changed(&self, changed: &CountChanged<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{changed:?}\n");
        seen.by_hand.push((changed.change.as_str(), changed.changed));
    }

    fn on_warning(&self, warning: &Warning) {
        let mut seen = self.0.lock().unwrap();
        seen.debug += &format!("{warning:?} {warning}\n");
        seen.warnings.push(warning.clone());
    }
}

fn request(request: ObservedRequest<'_>) -> String {
    format!("{} {}", request.method, request.route_or_unmatched())
}
