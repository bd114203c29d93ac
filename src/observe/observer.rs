//! The [`Observer`] trait.

use std::sync::Arc;

use crate::observe::{
    breaker_change::BreakerChange,
    event::{Abandoned, Batch, Decided, Evicted, Reset, StoreFailure},
    exempt::Exempt,
    refusal::Refused,
    warning::Warning,
};

/// Receives events of a limiter.
///
/// All methods default to doing nothing. They are called in the path of a request, by several threads at once, and must
/// not block: count, sample, or pass the event to another task. A panic in a method propagates to the request; in
/// [`on_batch`](Self::on_batch), to all requests in the call.
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

    /// The middleware let a request pass without a check: its route is exempt, or it has no key. A request that another
    /// policy of the layer limits is reported as a decision instead.
    fn on_exempt(&self, exempt: &Exempt) {
        let _ = exempt;
    }

    /// A check was dropped before its verdict, for example because the client hung up or an outer timeout passed. No
    /// decision follows, and the check may have been charged.
    ///
    /// A check that was never polled was not sent, and a peek charges nothing; neither is reported. The method is
    /// called while the check is dropped, so a panic in it may abort the process.
    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        let _ = abandoned;
    }

    /// A [`Limiter::reset`](crate::Limiter::reset) ended. A reset that is dropped before its end is not reported.
    fn on_reset(&self, reset: &Reset<'_>) {
        let _ = reset;
    }

    /// A full [`MemoryStore`](crate::MemoryStore) dropped a live count for a new key, so the client of that count
    /// starts with a fresh budget. Called for each dropped count. A flood of new keys drops many counts, so the method
    /// should return fast.
    fn on_evicted(&self, evicted: &Evicted<'_>) {
        let _ = evicted;
    }

    /// The setup of a store or a layer looks wrong. Called once for each store or layer and each kind of warning.
    fn on_warning(&self, warning: &Warning) {
        let _ = warning;
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

    fn on_exempt(&self, exempt: &Exempt) {
        (**self).on_exempt(exempt);
    }

    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        (**self).on_abandoned(abandoned);
    }

    fn on_reset(&self, reset: &Reset<'_>) {
        (**self).on_reset(reset);
    }

    fn on_evicted(&self, evicted: &Evicted<'_>) {
        (**self).on_evicted(evicted);
    }

    fn on_warning(&self, warning: &Warning) {
        (**self).on_warning(warning);
    }

    fn traces(&self) -> bool {
        (**self).traces()
    }
}
