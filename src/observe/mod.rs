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

mod breaker_change;
mod event;
mod exempt;
mod failure_message;
mod fanout;
mod fingerprint;
mod log_line;
#[cfg(feature = "metrics")]
mod metrics;
mod notices;
mod observer;
mod observer_cell;
mod outage;
mod refusal;
mod span;
mod throttle;
#[cfg(feature = "tracing")]
mod tracing;
mod warning;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "redis")]
pub(crate) use self::span::BatchSpan;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
pub use self::{
    breaker_change::{BreakerChange, BreakerState},
    event::{Abandoned, Batch, Decided, Evicted, ObservedCharge, Reset, StoreFailure},
    exempt::{Exempt, ExemptCause},
    fingerprint::Fingerprint,
    observer::Observer,
    refusal::{RefusalReason, Refused},
    warning::Warning,
};
pub(crate) use self::{
    failure_message::FailureEffect, fanout::fan_out, notices::Notices, observer_cell::ObserverCell, span::CheckSpan,
    throttle::Once,
};
