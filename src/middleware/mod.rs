//! The tower middleware: a thin HTTP skin over a [`Limiter`](crate::Limiter).
//!
//! A [`RateLimitLayer`] wraps a service. For each request it finds the key, the policies and the cost, lets the
//! [`Limiter`](crate::Limiter) check them, and either forwards the request or refuses it.
//!
//! # Rules
//!
//! * A request is charged before the inner service is called. A later failure is not refunded.
//! * All charges of a request are paid together or not at all.
//! * Layers that share a limiter, a policy and a key share the budget. A request that passes two of them is charged
//!   twice.
//! * The [`Decision`](crate::Decision) is in the extensions of the request, for handlers, and of the response, for
//!   outer layers.
//! * `layer()` does no I/O and spawns nothing. A wrong configuration is a [`ConfigError`](crate::ConfigError) of the
//!   setter that made it wrong.
//!
//! # Examples
//!
//! The default: one unit per request, fail-open, problem documents.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let limit = RateLimitLayer::new(limiter, Policy::per_minute("per-client", 60)?, PeerIp::default());
//! let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
//! # Ok(())
//! # }
//! ```
//!
//! Customised: costs and failure policies by route, a second budget per user, other fields and another rejection.
//!
//! ```
//! use tollgate::{
//!     ExtensionKey, HeaderStyle, KeyExtractor, Limiter, MemoryStore, MissingKey, PeerIp, Policy, RateLimitLayer,
//!     Route, rejection::PlainText,
//! };
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let user = ExtensionKey::<u64>::new().on_missing_key(MissingKey::Exempt);
//! let limit = RateLimitLayer::new(limiter, Policy::per_minute("per-client", 60)?, PeerIp::default())
//!     .and(Policy::per_day("per-user", 10_000)?, user)?
//!     .route("/search", Route::cost(10))?
//!     .route("POST /login", Route::policy(Policy::per_minute("login", 5)?).fail_closed())?
//!     .route("/healthz", Route::exempt())?
//!     .with_headers(HeaderStyle::XRateLimitDelta)
//!     .with_rejection(PlainText::default());
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```

mod config;
mod countdown;
#[cfg(feature = "axum")]
mod extract;
mod future;
mod layer;
mod layer_charges;
mod layer_responses;
mod prepare;
mod route;
mod service;
mod setup_checks;

#[cfg(feature = "axum")]
pub use self::extract::MissingDecision;
pub use self::{future::ResponseFuture, layer::RateLimitLayer, route::Route, service::RateLimit};
pub use crate::cost::{Cost, IntoCost};
