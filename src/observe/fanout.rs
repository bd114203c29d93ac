//! Observers side by side, and one that comes later.

use std::sync::{Arc, PoisonError, RwLock};

use super::{
    Abandoned, Batch, BreakerChange, Decided, Evicted, Exempt, Observer, Refused, Reset, StoreFailure, Warning,
};

/// An observer beside those that are there already.
pub(crate) fn both(first: Option<Arc<dyn Observer>>, second: Arc<dyn Observer>) -> Arc<dyn Observer> {
    match first {
        None => second,
        Some(first) => Arc::new(Both(first, second)),
    }
}

struct Both(Arc<dyn Observer>, Arc<dyn Observer>);

impl Observer for Both {
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

/// Where those who were made before keep the observer that they get. Looked at once a call, not once a check.
#[derive(Default)]
pub(crate) struct ObserverCell(RwLock<Option<Arc<dyn Observer>>>);

impl ObserverCell {
    pub(crate) fn set(&self, observer: Option<Arc<dyn Observer>>) {
        // One assignment, so a poisoned lock is as good as any.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = observer;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Observer>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
