//! Observing a limiter: events for metrics, logs and alerts.
//!
//! A limiter that stops limiting, or that refuses every request, looks healthy from outside. An [`Observer`] receives
//! each [`Event`]: decisions, failures, changes of the breaker, refusals without a check, keys near a limit, ends of
//! holds, once each [`Warning`] about the setup, and more. Their [names](Event#names) are a table.
//!
//! # Rules
//!
//! 1. [`Limiter::with_observer`](crate::Limiter::with_observer) adds an observer. The store of the limiter reports to
//!    it too, and so do the plans and the live limits of its layers. Without an observer, a check is neither timed nor
//!    copied, and costs one branch more.
//! 2. Observers are called in the path of a request, by several threads at once. They must not block.
//! 3. No event shows a key. A [`Fingerprint`] distinguishes keys: a hash under a random secret of this process, or
//!    under one that all instances [share](Fingerprint::set_secret).
//! 4. [`Tracing`] (feature `tracing`) and [`Metrics`] (feature `metrics`) are ready-made observers. The application has
//!    to add them, because a feature that another crate enables should not change the logs of a service.
//!
//! # What a limiter reports by itself
//!
//! A limiter reports on its own when limits are not enforced, with or without an observer: at the first check without a
//! verdict, at once if requests get something else than those before, such as 503 on a route that fails closed, at most
//! once a minute while the outage lasts, and when the store answers again. It also reports each warning about the setup
//! once, and at most once a minute that requests are refused because of the setup. These lines are `tracing` events at
//! level warn (feature `tracing`, on by default). Without that feature, or if no subscriber of the thread takes events
//! of the target `tollgate` at that level, they go to stderr:
//!
//! ```text
//! tollgate: Limits are not enforced: the store is unavailable: Connection refused (os error 111). Requests pass
//! without a limit (fail_open). Check that the store runs, can be reached from here and takes writes.
//! ```
//!
//! [`Limiter::without_notices`](crate::Limiter::without_notices) switches the lines off. An observer that writes such
//! events itself ([`Observer::traces`]), as [`Tracing`] does, replaces the events but not the lines on stderr.
//!
//! # The default
//!
//! Log events through `tracing`:
//!
//! ```
//! # #[cfg(feature = "tracing")]
//! # fn main() {
//! use tollgate::{Limiter, MemoryStore, observe::Tracing};
//!
//! let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new());
//! # }
//! # #[cfg(not(feature = "tracing"))]
//! # fn main() {}
//! ```
//!
//! # Customised
//!
//! An observer that counts denials. [`from_fn`] makes one of a closure:
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//! use tollgate::{Limiter, MemoryStore, Policy, observe::{Event, Observer}};
//!
//! #[derive(Default)]
//! struct Denials(AtomicU64);
//!
//! impl Observer for Denials {
//!     fn on_event(&self, event: &Event<'_>) {
//!         if event.decision().is_some_and(|decided| !decided.is_allowed()) {
//!             self.0.fetch_add(1, Ordering::Relaxed);
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let denials = Arc::new(Denials::default());
//! let limiter =
//!     Limiter::new(MemoryStore::new()).with_observer(Arc::clone(&denials));
//! let policy = Policy::per_minute("p", 1)?;
//! let _ = limiter.check("key", &policy, 1).await?;
//! let _ = limiter.check("key", &policy, 1).await?;
//! assert_eq!(denials.0.load(Ordering::Relaxed), 1);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(feature = "metrics"), doc = "[`Metrics`]: crate#feature-flags")]
#![cfg_attr(not(feature = "tracing"), doc = "[`Tracing`]: crate#feature-flags")]

mod by_hand;
mod check_event;
mod effects;
mod event_kind;
mod fanout;
mod fingerprint;
mod limits_change;
mod log_line;
#[cfg(feature = "metrics")]
mod metrics;
mod most_refused;
mod near_limits;
mod notices;
mod observer;
mod other;
mod outage;
mod plan;
#[cfg(any(feature = "plans", feature = "serde"))]
mod reporter;
mod request;
#[cfg(feature = "metrics")]
mod seen_policies;
mod span;
mod throttle;
#[cfg(feature = "tracing")]
mod tracing;
mod warning;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "plans")]
pub(crate) use self::plan::{PlanFallbackCause, PlanOutcome};
#[cfg(any(feature = "plans", feature = "serde"))]
pub(crate) use self::reporter::Reporter;
#[cfg(feature = "redis")]
pub(crate) use self::span::BatchSpan;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
pub(crate) use self::{
    by_hand::{CountChangeEvent, ResetEvent},
    check_event::{AbandonmentEvent, DecisionEvent, StoreFailure},
    effects::FailureEffect,
    event_kind::{EndedHold, EventKind, NearLimit},
    fanout::{ObserverCell, fan_out},
    limits_change::LimitsChange,
    near_limits::NearLimits,
    notices::Notices,
    observer::HoldEnd,
    other::{BreakerState, Eviction, Other},
    plan::{PlanFallback, PlanLookup},
    request::{ExemptCause, ObservedRequest, RefusalEvent, RefusalReason},
    span::{CheckSpan, LeaseSpan},
    throttle::{Once, Throttle, report_later, with_reports_after},
};
pub use self::{
    fingerprint::{Fingerprint, ObservedKey},
    most_refused::{MostRefused, RefusedKey},
    observer::{Event, Observer, from_fn},
    warning::Warning,
};
