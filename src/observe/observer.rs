//! The [`Observer`] trait.

use std::sync::Arc;

#[cfg(feature = "serde")]
use crate::observe::limits_change::LimitsChange;
use crate::observe::{
    breaker_change::BreakerChange,
    count_changed::CountChanged,
    event::{Abandoned, Batch, Decided, Evicted, Reset, StoreFailure},
    exempt::Exempt,
    hold_end::HoldEnded,
    near_limit::NearLimit,
    plan::{PlanFallback, PlanLookup},
    refusal::Refused,
    warning::Warning,
};

/// Receives events of a limiter.
///
/// All methods default to doing nothing. They are called in the path of a request, by several threads at once, and must
/// not block: count, sample, or pass the event to another task. A panic in a method ends the call of this observer
/// alone: the request goes on, other observers get the event, and the first panic is reported as a line for operators.
/// With `panic = "abort"` in the profile of the program, a panic ends the process.
///
/// # Examples
///
/// See [the module's page](crate::observe#customised).
pub trait Observer: Send + Sync + 'static {
    /// The store, a remembered denial or the failure policy decided a check.
    ///
    /// Callers of a [`Limiter`](crate::Limiter) apply the failure policy themselves, so their checks without a verdict
    /// are only [failures](Self::on_store_failure). A check of cost 0, such as a [peek](crate::Limiter::peek), is not
    /// reported.
    fn on_decision(&self, decided: &Decided<'_>) {
        let _ = decided;
    }

    /// A check got no verdict. In the middleware, the failure policy's decision follows.
    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        let _ = failure;
    }

    /// A call of the store ended. One call may contain several checks.
    fn on_batch(&self, batch: &Batch) {
        let _ = batch;
    }

    /// The breaker changed its state. Two threads may report two changes in either order; see
    /// [`BreakerChange::sequence`].
    fn on_breaker_change(&self, change: &BreakerChange) {
        let _ = change;
    }

    /// The middleware refused a request without a check: the request has no usable key, its cost can never pass, or the
    /// layer is misconfigured. No decision follows.
    fn on_refusal(&self, refused: &Refused<'_>) {
        let _ = refused;
    }

    /// The middleware would have refused a request without a check if it were not for shadow mode: see
    /// [`RateLimitLayer::with_shadow`](crate::RateLimitLayer::with_shadow). The request passes.
    fn on_would_refuse(&self, refused: &Refused<'_>) {
        let _ = refused;
    }

    /// A request has taken what a key has spent to the policy's [near limit](crate::Policy::with_near_limit). Called
    /// once for each key and window, also for shadow policies. Each process sees the requests that it has sent; a
    /// process that tracks more than 16 384 keys at a time may repeat the event for some of them.
    fn on_near_limit(&self, near: &NearLimit<'_>) {
        let _ = near;
    }

    /// The middleware let a request pass without a check: its route is exempt, or it has no key. A request that another
    /// policy of the layer limits is reported as a decision instead.
    fn on_exempt(&self, exempt: &Exempt) {
        let _ = exempt;
    }

    /// A check was dropped before its verdict, for example because the client hung up or an outer timeout passed. No
    /// decision follows, and the check may have been charged.
    ///
    /// A check that was never polled was not sent, and a peek charges nothing; neither is reported.
    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        let _ = abandoned;
    }

    /// A [hold](crate::Limiter::hold) of this process has ended: it was settled, released or dropped, or a settlement
    /// came too late or found no store. Holds that a crash leaves to the store are not reported.
    ///
    /// Called once for each hold of a handle, also by a task in the background, and while a handle is dropped.
    fn on_hold_ended(&self, ended: &HoldEnded<'_>) {
        let _ = ended;
    }

    /// A [`Limiter::reset`](crate::Limiter::reset) ended. A reset that is dropped before its end is not reported.
    fn on_reset(&self, reset: &Reset<'_>) {
        let _ = reset;
    }

    /// A count was changed by hand: a [`Limiter::ban`](crate::Limiter::ban), [`unban`](crate::Limiter::unban),
    /// [`record`](crate::Limiter::record) or [`credit`](crate::Limiter::credit) ended. A call that is refused as
    /// invalid, or dropped before its end, is not reported.
    fn on_count_changed(&self, changed: &CountChanged<'_>) {
        let _ = changed;
    }

    /// A full [`MemoryStore`](crate::MemoryStore) dropped a live count for a new key, so the client of that count
    /// starts with a fresh budget. Called for each dropped count. A flood of new keys drops many counts, so the method
    /// should return fast.
    fn on_evicted(&self, evicted: &Evicted<'_>) {
        let _ = evicted;
    }

    /// A look-up of a plan ended (feature `plans`). Called in the task of the look-up.
    fn on_plan_lookup(&self, lookup: &PlanLookup<'_>) {
        let _ = lookup;
    }

    /// A request had no current plan, so the last plan of its key or the default plan applied (feature `plans`).
    fn on_plan_fallback(&self, fallback: &PlanFallback) {
        let _ = fallback;
    }

    /// The setup of a store or a layer looks wrong. Called once for each store or layer and each kind of warning.
    fn on_warning(&self, warning: &Warning) {
        let _ = warning;
    }

    /// The limits of a [`LiveLimits`](crate::LiveLimits) were replaced, or new limits were refused. Called for the
    /// observers of [`LiveLimits::with_observer`](crate::LiveLimits::with_observer), on the thread that has replaced
    /// the limits, after the limits are in force.
    #[cfg(feature = "serde")]
    fn on_limits_change(&self, change: &LimitsChange) {
        let _ = change;
    }

    /// Whether this observer writes `tracing` events about what a limiter [reports by
    /// itself](crate::observe#what-a-limiter-reports-by-itself). The limiter then omits its own events; its lines still
    /// go to stderr if no subscriber takes the events.
    ///
    /// Defaults to `false`, because an observer that only counts must not silence the report that limits are not
    /// enforced.
    fn traces(&self) -> bool {
        false
    }
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn on_decision(&self, decided: &Decided<'_>) {
        (**self).on_decision(decided);
    }

    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        (**self).on_store_failure(failure);
    }

    fn on_batch(&self, batch: &Batch) {
        (**self).on_batch(batch);
    }

    fn on_breaker_change(&self, change: &BreakerChange) {
        (**self).on_breaker_change(change);
    }

    fn on_refusal(&self, refused: &Refused<'_>) {
        (**self).on_refusal(refused);
    }

    fn on_would_refuse(&self, refused: &Refused<'_>) {
        (**self).on_would_refuse(refused);
    }

    fn on_near_limit(&self, near: &NearLimit<'_>) {
        (**self).on_near_limit(near);
    }

    fn on_exempt(&self, exempt: &Exempt) {
        (**self).on_exempt(exempt);
    }

    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        (**self).on_abandoned(abandoned);
    }

    fn on_hold_ended(&self, ended: &HoldEnded<'_>) {
        (**self).on_hold_ended(ended);
    }

    fn on_reset(&self, reset: &Reset<'_>) {
        (**self).on_reset(reset);
    }

    fn on_count_changed(&self, changed: &CountChanged<'_>) {
        (**self).on_count_changed(changed);
    }

    fn on_evicted(&self, evicted: &Evicted<'_>) {
        (**self).on_evicted(evicted);
    }

    fn on_plan_lookup(&self, lookup: &PlanLookup<'_>) {
        (**self).on_plan_lookup(lookup);
    }

    fn on_plan_fallback(&self, fallback: &PlanFallback) {
        (**self).on_plan_fallback(fallback);
    }

    fn on_warning(&self, warning: &Warning) {
        (**self).on_warning(warning);
    }

    #[cfg(feature = "serde")]
    fn on_limits_change(&self, change: &LimitsChange) {
        (**self).on_limits_change(change);
    }

    fn traces(&self) -> bool {
        (**self).traces()
    }
}
