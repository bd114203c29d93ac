//! A decision and a bill as the arguments of an axum handler, and a denial as its response.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, request::Parts};

use super::holding::Bill;
use crate::rejection::{Denial, ProblemJson};
use crate::{decision::Decision, headers::HeaderWriter};

/// The response to a request of a handler that takes a [`Decision`] where no layer has inserted one. The mistake is in
/// the service.
const NO_DECISION: (StatusCode, &str) = (
    StatusCode::INTERNAL_SERVER_ERROR,
    "no rate limit decision: no RateLimitLayer is around this handler, or the request is exempt from it; add the \
     layer, or take an Option<Decision>",
);

/// Where no layer has inserted a decision, the response is 500 with a message that says so.
impl<S: Sync> FromRequestParts<S> for Decision {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or(NO_DECISION)
    }
}

/// For handlers of requests that may be exempt.
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
/// let app: axum::Router =
///     axum::Router::new().route("/", axum::routing::get(quality));
/// ```
impl<S: Sync> OptionalFromRequestParts<S> for Decision {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// The response to a request of a handler that takes a [`Bill`] where no layer has inserted one.
const NO_BILL: (StatusCode, &str) = (
    StatusCode::INTERNAL_SERVER_ERROR,
    "no bill: no RateLimitLayer with a settlement or a concurrency limit is around this handler; call \
     `.with_settlement(..)` on the layer, or take an Option<Bill>",
);

/// Where no layer has inserted a bill, the response is 500 with a message that says so.
impl<S: Sync> FromRequestParts<S> for Bill {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or(NO_BILL)
    }
}

/// For handlers of requests that may have no bill.
impl<S: Sync> OptionalFromRequestParts<S> for Bill {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

impl IntoResponse for Denial {
    /// Responds as a layer does by default: with the document of [`ProblemJson`] and the fields of
    /// [`HeaderStyle::Draft11`](crate::HeaderStyle::Draft11). [`Denial::respond`] builds other responses. In a
    /// [rejection](crate::rejection::Rejection), the fields are those of its layer.
    fn into_response(self) -> Response {
        // The head of the request is not known here. axum removes the content if the method is HEAD.
        let (parts, ()) = Request::new(()).into_parts();
        self.respond(&ProblemJson::default(), &HeaderWriter::default(), &parts)
    }
}
