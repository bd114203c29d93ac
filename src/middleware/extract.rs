//! A decision as the argument of an axum handler, and a denial as its response.

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

/// The rejection of a handler that takes a [`Decision`] where no layer has inserted one.
///
/// The response is 500, because the mistake is in the service: put a layer around the handler, or take an
/// `Option<Decision>` where the request may be exempt.
///
/// # Examples
///
/// ```
/// use tollgate::Decision;
///
/// /// Also serves exempt requests.
/// async fn quality(decision: Option<Decision>) -> &'static str {
///     match decision.and_then(|decision| decision.available()) {
///         Some(0..=9) => "low",
///         _ => "high",
///     }
/// }
/// let app: axum::Router = axum::Router::new().route("/", axum::routing::get(quality));
/// ```
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
    /// Responds with 500 and the message.
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl IntoResponse for Denial {
    /// Responds as a layer does by default: with the document of [`ProblemJson`] and the fields of
    /// [`HeaderStyle::Draft11`](crate::HeaderStyle::Draft11). [`Denial::respond`] builds other responses.
    fn into_response(self) -> Response {
        // The head of the request is not known here. axum removes the content if the method is HEAD.
        let (parts, ()) = Request::new(()).into_parts();
        self.respond(&ProblemJson::default(), &Writer::default(), &parts)
    }
}
