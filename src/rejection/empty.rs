//! Rejections without content.

use http::{Response, request::Parts};

use super::{denial::Denial, respond::Rejection};

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
