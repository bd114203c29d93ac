//! The tower middleware: a thin HTTP skin over a [`Limiter`](crate::Limiter).

mod config;
mod countdown;
#[cfg(feature = "axum")]
mod extract;
mod future;
mod layer;
mod layer_charges;
mod layer_responses;
mod route;
mod service;
mod setup_checks;

#[cfg(feature = "axum")]
pub use self::extract::MissingDecision;
pub use self::{future::ResponseFuture, layer::RateLimitLayer, route::Route, service::RateLimit};
pub use crate::cost::{Cost, IntoCost};
