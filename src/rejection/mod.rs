//! The response to a refused request.
//!
//! A refused request never reaches the service, so the layer responds. A [`Rejection`] builds the response, and the
//! layer adds the fields that the response lacks: RateLimit, `Retry-After` and `Cache-Control: no-store`.
//!
//! | rejection | content | for |
//! | --- | --- | --- |
//! | [`ProblemJson`], the default | `application/problem+json` (RFC 9457) | HTTP APIs |
//! | [`PlainText`] | one line of text | scripts and people |
//! | [`EmptyBody`] | none | body types without `From<Bytes>` |
//! | `GrpcStatus` (feature `grpc`) | a gRPC status (trailers-only) | gRPC services |
//! | a function or closure `Fn(&Parts, &Denial) -> Response<B>` | what it returns | everything else |
//!
//! # Rules
//!
//! | [`Reason`] | status | Retry-After |
//! | --- | --- | --- |
//! | the quota is spent | 429 | the time until the request passes |
//! | the store cannot answer (fail-closed), or is overloaded | 503 | 1 s, or the layer's setting |
//! | the cost can never pass | 400 | none |
//! | the key is missing or unusable | 400 | none |
//! | the address is denied | 403 | none |
//! | the layer is misconfigured, or outside the layer that inserts its key | 500 | none |
//!
//! No response contains a key, an address or an error of the store.
//!
//! # Examples
//!
//! The default needs no code. Customised: a web page for a spent quota, problem documents for everything else.
//!
//! ```
//! use axum::{body::Body, response::Html, response::IntoResponse};
//! use http::{Response, request::Parts};
//! use tollgate::{
//!     GlobalKey, Limiter, MemoryStore, Policy, ProblemJson, RateLimitLayer,
//!     rejection::{Denial, Reason, Rejection},
//! };
//!
//! fn slow_down(parts: &Parts, denial: &Denial) -> Response<Body> {
//!     match denial.reason() {
//!         Reason::QuotaExceeded => (denial.status(), Html("<h1>Please slow down</h1>")).into_response(),
//!         _ => ProblemJson::default().reject(parts, denial),
//!     }
//! }
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let limit = RateLimitLayer::new(limiter, Policy::per_second("all", 100)?, GlobalKey).with_rejection(slow_down);
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```

mod denial;
mod from_check;
#[cfg(feature = "grpc")]
mod grpc;
mod problem;
pub(crate) mod respond;

#[cfg(feature = "grpc")]
pub use self::grpc::GrpcStatus;
pub use self::{
    denial::{Denial, Reason},
    problem::ProblemJson,
    respond::{EmptyBody, PlainText, Rejection, from_fn},
};
