//! Several observers as one.

use std::sync::Arc;

#[cfg(feature = "serde")]
use crate::observe::limits_change::LimitsChange;
use crate::observe::{
    breaker_change::BreakerChange,
    event::{Abandoned, Batch, Decided, Evicted, Reset, StoreFailure},
    exempt::Exempt,
    hold_end::HoldEnded,
    near_limit::NearLimit,
    observer::Observer,
    plan::{PlanFallback, PlanLookup},
    refusal::Refused,
    resolve::ResolveFailure,
    warning::Warning,
};

/// Adds an observer to those that were set before, and returns all of them as one.
pub(crate) fn fan_out(first: Option<Arc<dyn Observer>>, second: Arc<dyn Observer>) -> Arc<dyn Observer> {
    match first {
        None => second,
        Some(first) => Arc::new(Fanout(first, second)),
    }
}

/// Passes every event to the first observer and then to the second one.
struct Fanout(Arc<dyn Observer>, Arc<dyn Observer>);

impl Observer for Fanout {
    fn on_decision(&self, decided: &Decided<'_>) {
        self.0.on_decision(decided);
        self.1.on_decision(decided);
    }

    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        self.0.on_store_failure(failure);
        self.1.on_store_failure(failure);
    }

    fn on_batch(&self, batch: &Batch) {
        self.0.on_batch(batch);
        self.1.on_batch(batch);
    }

    fn on_breaker_change(&self, change: &BreakerChange) {
        self.0.on_breaker_change(change);
        self.1.on_breaker_change(change);
    }

    fn on_refusal(&self, refused: &Refused<'_>) {
        self.0.on_refusal(refused);
        self.1.on_refusal(refused);
    }

    fn on_would_refuse(&self, refused: &Refused<'_>) {
        self.0.on_would_refuse(refused);
        self.1.on_would_refuse(refused);
    }

    fn on_near_limit(&self, near: &NearLimit<'_>) {
        self.0.on_near_limit(near);
        self.1.on_near_limit(near);
    }

    fn on_exempt(&self, exempt: &Exempt) {
        self.0.on_exempt(exempt);
        self.1.on_exempt(exempt);
    }

    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        self.0.on_abandoned(abandoned);
        self.1.on_abandoned(abandoned);
    }

    fn on_hold_ended(&self, ended: &HoldEnded<'_>) {
        self.0.on_hold_ended(ended);
        self.1.on_hold_ended(ended);
    }

    fn on_reset(&self, reset: &Reset<'_>) {
        self.0.on_reset(reset);
        self.1.on_reset(reset);
    }

    fn on_evicted(&self, evicted: &Evicted<'_>) {
        self.0.on_evicted(evicted);
        self.1.on_evicted(evicted);
    }

    fn on_plan_lookup(&self, lookup: &PlanLookup<'_>) {
        self.0.on_plan_lookup(lookup);
        self.1.on_plan_lookup(lookup);
    }

    fn on_plan_fallback(&self, fallback: &PlanFallback) {
        self.0.on_plan_fallback(fallback);
        self.1.on_plan_fallback(fallback);
    }

    fn on_resolve_failure(&self, failure: &ResolveFailure<'_>) {
        self.0.on_resolve_failure(failure);
        self.1.on_resolve_failure(failure);
    }

    fn on_warning(&self, warning: &Warning) {
        self.0.on_warning(warning);
        self.1.on_warning(warning);
    }

    #[cfg(feature = "serde")]
    fn on_limits_change(&self, change: &LimitsChange) {
        self.0.on_limits_change(change);
        self.1.on_limits_change(change);
    }

    fn traces(&self) -> bool {
        self.0.traces() || self.1.traces()
    }
}
