//! An observer that panics, or does not.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicU64, Ordering},
};

use tollgate::observe::{
    Abandoned, Batch, BreakerChange, CountChanged, Decided, Exempt, HoldEnded, LimitsChange, NearLimit, Observer,
    PlanFallback, PlanLookup, Refused, StoreFailure, Warning,
};

use crate::plan::Watch;

/// Watches everything. If it panics, at every second event.
#[derive(Debug)]
pub(crate) struct Onlooker {
    panics: bool,
    events: AtomicU64,
}

impl Onlooker {
    /// The onlooker of a plan, if it has one.
    pub(crate) fn of(watch: Watch) -> Option<Self> {
        let panics = watch == Watch::Panics;
        (watch != Watch::Nobody).then(|| Self { panics, events: AtomicU64::new(0) })
    }

    fn event(&self) {
        if self.panics && self.events.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            resume_unwind(Box::new("an observer panics"));
        }
    }
}

impl Observer for Onlooker {
    fn on_decision(&self, _: &Decided<'_>) {
        self.event();
    }

    fn on_store_failure(&self, _: &StoreFailure<'_>) {
        self.event();
    }

    fn on_batch(&self, _: &Batch) {
        self.event();
    }

    fn on_breaker_change(&self, _: &BreakerChange) {
        self.event();
    }

    fn on_refusal(&self, _: &Refused<'_>) {
        self.event();
    }

    fn on_near_limit(&self, _: &NearLimit<'_>) {
        self.event();
    }

    fn on_exempt(&self, _: &Exempt) {
        self.event();
    }

    fn on_abandoned(&self, _: &Abandoned<'_>) {
        self.event();
    }

    fn on_hold_ended(&self, _: &HoldEnded<'_>) {
        self.event();
    }

    fn on_count_changed(&self, _: &CountChanged<'_>) {
        self.event();
    }

    fn on_plan_lookup(&self, _: &PlanLookup<'_>) {
        self.event();
    }

    fn on_plan_fallback(&self, _: &PlanFallback) {
        self.event();
    }

    fn on_warning(&self, _: &Warning) {
        self.event();
    }

    fn on_limits_change(&self, _: &LimitsChange) {
        self.event();
    }
}
