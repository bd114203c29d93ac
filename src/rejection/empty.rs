//! Rejections without content.

use http::{Response, StatusCode, request::Parts};

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
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyBody {
    quota_status: Option<StatusCode>,
}

impl EmptyBody {
    /// Sets the status for a spent quota. Defaults to 429 (RFC 6585); GitHub's API uses 403.
    #[must_use]
    pub fn with_quota_status(self, status: StatusCode) -> Self {
        Self { quota_status: Some(status) }
    }
}

impl<B: Default> Rejection<B> for EmptyBody {
    fn reject(&self, _: &Parts, denial: &Denial) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = denial.status_or(self.quota_status);
        response
    }
}
