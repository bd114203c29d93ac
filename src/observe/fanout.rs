//! Several observers as one.

use std::sync::Arc;

use crate::observe::{
    breaker_change::BreakerChange,
    event::{Abandoned, Batch, Decided, Evicted, Reset, StoreFailure},
    exempt::Exempt,
    observer::Observer,
    refusal::Refused,
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

    fn on_exempt(&self, exempt: &Exempt) {
        self.0.on_exempt(exempt);
        self.1.on_exempt(exempt);
    }

    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        self.0.on_abandoned(abandoned);
        self.1.on_abandoned(abandoned);
    }

    fn on_reset(&self, reset: &Reset<'_>) {
        self.0.on_reset(reset);
        self.1.on_reset(reset);
    }

    fn on_evicted(&self, evicted: &Evicted<'_>) {
        self.0.on_evicted(evicted);
        self.1.on_evicted(evicted);
    }

    fn on_warning(&self, warning: &Warning) {
        self.0.on_warning(warning);
        self.1.on_warning(warning);
    }

    fn traces(&self) -> bool {
        self.0.traces() || self.1.traces()
    }
}
