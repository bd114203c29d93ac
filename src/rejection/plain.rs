//! Rejections without content, or with one line of text.

use bytes::Bytes;
use http::{HeaderValue, Response, request::Parts};

use super::{
    denial::{Denial, Reason},
    respond::{Rejection, respond},
};
use crate::headers::whole_seconds;

/// Responds to refused requests with a line of `text/plain`: "rate limit exceeded; retry after 3s".
///
/// The text contains nothing about keys or the store. Works with any body type that implements `From<Bytes>`.
///
/// # Examples
///
/// ```
/// use axum::body::Body;
/// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, rejection::PlainText};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let layer = RateLimitLayer::new(limiter, Policy::per_second("all", 100)?, GlobalKey)
///     .with_rejection(PlainText::default());
/// # let _: axum::Router = axum::Router::new().route("/", axum::routing::get(|| async {})).layer(layer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct PlainText;

#[diagnostic::do_not_recommend]
impl<B: From<Bytes>> Rejection<B> for PlainText {
    fn reject(&self, parts: &Parts, denial: &Denial) -> Response<B> {
        let status = denial.status();
        let text = match (denial.reason(), denial.retry_after()) {
            (Reason::QuotaExceeded, Some(wait)) => {
                format!("rate limit exceeded; retry after {}s\n", whole_seconds(wait))
            }
            (Reason::QuotaExceeded, None) => "rate limit exceeded\n".to_owned(),
            (Reason::StoreUnavailable, _) => "rate limiter unavailable\n".to_owned(),
            _ => match denial.detail() {
                Some(detail) => format!("{detail}\n"),
                None => format!("{}\n", status.canonical_reason().unwrap_or("Error")),
            },
        };
        respond(parts, status, HeaderValue::from_static("text/plain; charset=utf-8"), text.as_bytes())
    }
}

/// Responds to refused requests with the status and the fields, without content.
///
/// The status is [`Denial::status`]. Works with any body type that implements `Default`, also without `From<Bytes>`.
/// `GrpcStatus` uses `EmptyBody` by default for requests that are not gRPC calls.
///
/// # Examples
///
/// ```
/// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, rejection::EmptyBody};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let limit = RateLimitLayer::new(limiter, Policy::per_second("all", 100)?, GlobalKey)
///     .with_rejection(EmptyBody::default());
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
///
/// With another status for a spent quota, as in GitHub's API:
///
/// ```
/// use http::{Response, StatusCode, request::Parts};
/// use tollgate::rejection::{Denial, EmptyBody, Reason, Rejection};
///
/// fn forbidden<B: Default>(parts: &Parts, denial: &Denial) -> Response<B> {
///     let mut response = EmptyBody::default().reject(parts, denial);
///     if denial.reason() == Reason::QuotaExceeded {
///         *response.status_mut() = StatusCode::FORBIDDEN;
///     }
///     response
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct EmptyBody;

#[diagnostic::do_not_recommend]
impl<B: Default> Rejection<B> for EmptyBody {
    fn reject(&self, _: &Parts, denial: &Denial) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = denial.status();
        response
    }
}
