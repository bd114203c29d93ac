//! Rejections without content.

use http::{Response, StatusCode, request::Parts};

use super::{denial::Denial, respond::Rejection};

/// Answers refused requests without content: the status and the fields say it all.
///
/// Works with any body that has a default, so that it is there where no body can be made of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyBody {
    quota_status: Option<StatusCode>,
}

impl EmptyBody {
    /// Answers a spent quota with `status`. Defaults to 429, as RFC 6585 says; GitHub's API uses 403.
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
