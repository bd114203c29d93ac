//! The tower middleware: applies a [`Limiter`](crate::Limiter) to HTTP requests.
//!
//! A [`RateLimitLayer`] wraps a service. For each request the layer finds the key, the policies and the cost, passes
//! them to the [`Limiter`](crate::Limiter) as one check, and forwards or refuses the request.
//!
//! # Rules
//!
//! * A request is charged before the inner service is called. A later failure is not refunded, unless the layer
//!   [settles](RateLimitLayer::with_settlement) what it holds.
//! * A slot of a [concurrency limit](crate::Policy::concurrent) is held until the response body has ended, and until
//!   the last [`HoldGuard`] of its request is dropped.
//! * All charges of a request are committed together or none is.
//! * Layers that share a limiter, a policy and a key share the budget. A request that passes two such layers is
//!   charged twice.
//! * The [`Decision`](crate::Decision) is in the extensions of the request, for handlers. It is in those of a response
//!   if the request was denied, or if the layer
//!   [puts it there](RateLimitLayer::with_decision_in_response), for outer layers.
//! * `layer()` does no I/O and spawns nothing. A layer keeps the first [mistake](RateLimitLayer#mistakes) in its
//!   settings for [`validated`](RateLimitLayer::validated); without this check, each request gets 500.
//!
//! # Examples
//!
//! The default: each request costs one unit. A request passes while the store cannot answer. A refused request gets a
//! problem document.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let limit = RateLimitLayer::new(
//!     limiter,
//!     Policy::per_minute("per-client", 60)?,
//!     PeerIp::new(),
//! );
//! let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
//! # Ok(())
//! # }
//! ```
//!
//! Customised: costs and failure policies by route, a second budget per user, another header style and another
//! rejection.
//!
//! ```
//! use tollgate::{
//!     ExtensionKey, HeaderStyle, Limiter, MemoryStore, PeerIp, Policy,
//!     RateLimitLayer, Route, rejection::PlainText,
//! };
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let limit = RateLimitLayer::new(
//!     limiter,
//!     Policy::per_minute("per-client", 60)?,
//!     PeerIp::new(),
//! )
//! .and_optional(Policy::per_day("per-user", 10_000)?, ExtensionKey::<u64>::new())
//! .route("/search", Route::new().cost(10))
//! .route(
//!     "POST /login",
//!     Route::new().policies(Policy::per_minute("login", 5)?).fail_closed(),
//! )
//! .route("/healthz", Route::exempt())
//! .with_headers(HeaderStyle::XRateLimitDelta)
//! .with_rejection(PlainText::default())
//! .validated()?;
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```

mod admitted;
mod config;
#[cfg(feature = "axum")]
mod extract;
mod future;
mod holding;
mod layer;
mod layer_charges;
mod layer_responses;
mod prepare;
mod route;
mod rules;
mod service;
mod setup_checks;

#[cfg(feature = "serde")]
pub(crate) use self::route::{RouteTable, Settings};
#[cfg(feature = "serde")]
pub(crate) use self::rules::{Followers, Rules, RulesOwner};
pub use self::{
    future::ResponseFuture,
    holding::{Bill, HeldBody, HeldTooLong, HoldGuard, Settlement, WrappedBody},
    layer::RateLimitLayer,
    route::Route,
    service::RateLimit,
};
