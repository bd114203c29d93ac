//! Seeing what the limiter does: an [`Observer`] is told of every decision, failure, batch and change of the breaker, of
//! requests that were refused without a check, of checks that were given up, of resets, and, once, of what looks wrong
//! about the setup ([`Warning`]).
//!
//! Set it with [`Limiter::with_observer`](crate::Limiter::with_observer). Without one, a check is neither timed nor copied: the
//! price is one branch. Ready-made observers are [`Tracing`] (feature `tracing`) and [`Metrics`] (feature `metrics`);
//! both have to be set, for a feature that another crate of the build has switched on should not begin to log in yours.
//!
//! # What a limiter says by itself
//!
//! A limiter that does not limit says so, whether or not it has an observer: at the first check without a verdict, at most
//! once a minute while that lasts, and when the store answers again. It also says once what looks wrong about the setup,
//! and at most once a minute that requests are refused because of it. These lines are `tracing` events at level warn
//! (feature `tracing`, on by default). Without that feature, or where no subscriber of the thread takes events of the target
//! `tollgate` at that level, they go to stderr:
//!
//! ```text
//! tollgate: Limits are not enforced: the store is unavailable: Connection refused (os error 111). Requests pass without
//! a limit (fail_open). Check that the store runs, can be reached from here and takes writes.
//! ```
//!
//! [`Limiter::quiet`](crate::Limiter::quiet) switches them off. An observer that writes such events itself
//! ([`Observer::traces`]), as [`Tracing`] does, takes the place of the events and not that of the lines on stderr.
//!
//! No event holds a key. What tells keys apart is a [`Fingerprint`]: a hash under a secret of this process, so
//! that it can neither be turned back nor joined with another process's.
//!
//! # Examples
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//! use tollgate::{Limiter, MemoryStore, Policy, observe::{Decided, Observer}};
//!
//! #[derive(Default)]
//! struct Denials(AtomicU64);
//!
//! impl Observer for Denials {
//!     fn on_decision(&self, decided: &Decided<'_>) {
//!         if !decided.decision.is_allowed() {
//!             self.0.fetch_add(1, Ordering::Relaxed);
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let denials = Arc::new(Denials::default());
//! let limiter = Limiter::new(MemoryStore::new()).with_observer(Arc::clone(&denials));
//! let policy = Policy::per_minute("p", 1)?;
//! limiter.check("key", &policy, 1).await?;
//! limiter.check("key", &policy, 1).await?;
//! assert_eq!(denials.0.load(Ordering::Relaxed), 1);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(feature = "metrics"), doc = "[`Metrics`]: crate#feature-flags")]
#![cfg_attr(not(feature = "tracing"), doc = "[`Tracing`]: crate#feature-flags")]

mod beside;
mod event;
mod exempt;
mod failure_message;
mod fanout;
mod fingerprint;
mod log_line;
#[cfg(feature = "metrics")]
mod metrics;
mod notices;
mod outage;
mod span;
mod throttle;
#[cfg(feature = "tracing")]
mod tracing;
mod warning;

use std::sync::Arc;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "redis")]
pub(crate) use self::span::BatchSpan;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
pub use self::{
    beside::{Abandoned, Evicted, Refused, Reset},
    event::{Batch, BreakerChange, BreakerState, Decided, ObservedCharge, StoreFailure},
    exempt::{Exempt, ExemptCause},
    fingerprint::Fingerprint,
    warning::Warning,
};
pub(crate) use self::{
    failure_message::FailureEffect,
    fanout::{ObserverCell, both},
    notices::Notices,
    span::CheckSpan,
    warning::Once,
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
