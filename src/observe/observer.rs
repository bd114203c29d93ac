//! The [`Observer`] trait.

use std::sync::Arc;

use crate::observe::{
    breaker_change::BreakerChange,
    event::{Abandoned, Batch, Decided, Evicted, Reset, StoreFailure},
    exempt::Exempt,
    refusal::Refused,
    warning::Warning,
};

/// Is told what the limiter does.
///
/// The methods are called in the path of a request, by several threads at once: count, sample or hand over, and do not
/// wait. A panic in one of them is the request's, or, in [`on_batch`](Self::on_batch), that of all requests in the call.
pub trait Observer: Send + Sync + 'static {
    /// A check was decided: by the store, by a remembered denial, or by the failure policy.
    ///
    /// A [`Limiter`](crate::Limiter) that is called directly leaves the failure policy to its caller, so a check
    /// without a verdict is then a [failure](Self::on_store_failure) and nothing else. A check that owes nothing, like
    /// a [peek](crate::Limiter::peek), decides nothing and is not reported here.
    fn on_decision(&self, decided: &Decided<'_>) {
        let _ = decided;
    }

    /// A check got no verdict. In the middleware, the failure policy's decision follows.
    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        let _ = failure;
    }

    /// A call of the store's, with one check or many, has come to its end.
    fn on_batch(&self, batch: &Batch) {
        let _ = batch;
    }

    /// The circuit breaker has changed its state. Two threads may report two changes in either order; see
    /// [`BreakerChange::sequence`].
    fn on_breaker_change(&self, change: &BreakerChange) {
        let _ = change;
    }

    /// The middleware refused a request that never became a check: it has no usable key, costs more than can ever pass,
    /// or met a layer that cannot work. No decision follows.
    fn on_refusal(&self, refused: &Refused<'_>) {
        let _ = refused;
    }

    /// The middleware let a request pass that nothing limits: its route is exempt, or it has no key to be charged to.
    /// One that another subject of the layer limits is a decision.
    fn on_exempt(&self, exempt: &Exempt) {
        let _ = exempt;
    }

    /// A check was dropped before its verdict: in the middleware, because the client hung up or something outside has
    /// timed out. No decision follows, and it may have been charged.
    ///
    /// A check that was never polled was never sent, and that of a peek owes nothing: neither is reported here. Called
    /// while the check is dropped, so a panic in it may end the process.
    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        let _ = abandoned;
    }

    /// [`Limiter::reset`](crate::Limiter::reset) has come to its end. One that is dropped before is not reported.
    fn on_reset(&self, reset: &Reset<'_>) {
        let _ = reset;
    }

    /// A [`MemoryStore`](crate::MemoryStore) that is full has dropped a live count for a new key: the client of the one
    /// that was dropped starts afresh. Once for each count, so count and do no more.
    fn on_evicted(&self, evicted: &Evicted<'_>) {
        let _ = evicted;
    }

    /// Something looks wrong about the setup, of a store or of a layer. Once for each of them and each kind.
    fn on_warning(&self, warning: &Warning) {
        let _ = warning;
    }

    /// Whether this observer writes `tracing` events about what a limiter
    /// [says by itself](self#what-a-limiter-says-by-itself). The limiter then leaves out its own events, and its lines still go
    /// to stderr where no subscriber listens.
    ///
    /// Defaults to `false`, because a metric that is not looked at must not silence a limiter that does not limit.
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
