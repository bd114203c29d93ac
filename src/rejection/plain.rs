//! Rejections with one line of text.

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
