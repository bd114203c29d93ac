//! Decisions as arguments of axum's handlers, and denials as their responses.

use std::{convert::Infallible, error, fmt};

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{Request, StatusCode, request::Parts};

use crate::{
    decision::Decision,
    headers::Writer,
    rejection::{Denial, ProblemJson},
};

/// A handler takes a [`Decision`], and no layer has put one into the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MissingDecision;

impl<S: Sync> FromRequestParts<S> for Decision {
    type Rejection = MissingDecision;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingDecision> {
        parts.extensions.get().cloned().ok_or(MissingDecision)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decision {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

impl fmt::Display for MissingDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no rate limit decision: no RateLimitLayer is around this handler, or the request is exempt from it; add \
             the layer, or take an Option<Decision>",
        )
    }
}

impl error::Error for MissingDecision {}

impl IntoResponse for MissingDecision {
    /// 500 with the message: the client cannot mend it.
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl IntoResponse for Denial {
    /// The layer's default answer: [`ProblemJson`]'s document with the fields of
    /// [`HeaderStyle::Draft11`](crate::HeaderStyle::Draft11). For others see [`Denial::respond`].
    fn into_response(self) -> Response {
        // axum itself takes the content from responses to HEAD.
        let (parts, ()) = Request::new(()).into_parts();
        self.respond(&ProblemJson::default(), &Writer::default(), &parts)
    }
}
