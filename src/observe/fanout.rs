//! Several observers as one. Only the code below calls an observer, and it contains a panic of one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use smallvec::SmallVec;

#[cfg(feature = "serde")]
use crate::observe::limits_change::LimitsChange;
use crate::observe::{
    breaker_change::BreakerChange,
    count_changed::CountChanged,
    event::{Abandoned, Batch, Decided, Evicted, Reset, StoreFailure},
    exempt::Exempt,
    hold_end::HoldEnded,
    log_line::{Topic, write_line},
    near_limit::NearLimit,
    observer::Observer,
    plan::{PlanFallback, PlanLookup},
    refusal::Refused,
    warning::Warning,
};

/// Adds an observer to those that were set before, and returns all of them as one.
pub(crate) fn fan_out(first: Option<Arc<dyn Observer>>, second: Arc<dyn Observer>) -> Arc<dyn Observer> {
    Arc::new(Fanout { observers: first.into_iter().chain([second]).collect(), has_panicked: AtomicBool::new(false) })
}

/// Passes every event to each observer in turn.
struct Fanout {
    observers: SmallVec<[Arc<dyn Observer>; 2]>,
    /// Whether a panic of an observer has been reported.
    has_panicked: AtomicBool,
}

impl Fanout {
    /// Calls each observer. A panic ends the call of that observer alone: watching a request must not change it, and
    /// events are also reported while a request unwinds, where a second panic would abort the process.
    #[inline]
    fn each(&self, call: impl Fn(&dyn Observer)) {
        for observer in &self.observers {
            if catch_unwind(AssertUnwindSafe(|| call(&**observer))).is_err() {
                self.report_panic();
            }
        }
    }

    #[cold]
    fn report_panic(&self) {
        if !self.has_panicked.swap(true, Ordering::Relaxed) {
            let text = "An observer panicked. It misses the event, and no request is affected. Correct the observer; \
                        its further panics are not reported here.";
            write_line(Topic::Setup, text, false);
        }
    }
}

impl Observer for Fanout {
    fn on_decision(&self, decided: &Decided<'_>) {
        self.each(|observer| observer.on_decision(decided));
    }

    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        self.each(|observer| observer.on_store_failure(failure));
    }

    fn on_batch(&self, batch: &Batch) {
        self.each(|observer| observer.on_batch(batch));
    }

    fn on_breaker_change(&self, change: &BreakerChange) {
        self.each(|observer| observer.on_breaker_change(change));
    }

    fn on_refusal(&self, refused: &Refused<'_>) {
        self.each(|observer| observer.on_refusal(refused));
    }

    fn on_would_refuse(&self, refused: &Refused<'_>) {
        self.each(|observer| observer.on_would_refuse(refused));
    }

    fn on_near_limit(&self, near: &NearLimit<'_>) {
        self.each(|observer| observer.on_near_limit(near));
    }

    fn on_exempt(&self, exempt: &Exempt) {
        self.each(|observer| observer.on_exempt(exempt));
    }

    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        self.each(|observer| observer.on_abandoned(abandoned));
    }

    fn on_hold_ended(&self, ended: &HoldEnded<'_>) {
        self.each(|observer| observer.on_hold_ended(ended));
    }

    fn on_reset(&self, reset: &Reset<'_>) {
        self.each(|observer| observer.on_reset(reset));
    }

    fn on_count_changed(&self, changed: &CountChanged<'_>) {
        self.each(|observer| observer.on_count_changed(changed));
    }

    fn on_evicted(&self, evicted: &Evicted<'_>) {
        self.each(|observer| observer.on_evicted(evicted));
    }

    fn on_plan_lookup(&self, lookup: &PlanLookup<'_>) {
        self.each(|observer| observer.on_plan_lookup(lookup));
    }

    fn on_plan_fallback(&self, fallback: &PlanFallback) {
        self.each(|observer| observer.on_plan_fallback(fallback));
    }

    fn on_warning(&self, warning: &Warning) {
        self.each(|observer| observer.on_warning(warning));
    }

    #[cfg(feature = "serde")]
    fn on_limits_change(&self, change: &LimitsChange) {
        self.each(|observer| observer.on_limits_change(change));
    }

    fn traces(&self) -> bool {
        self.observers.iter().any(|observer| observer.traces())
    }
}
