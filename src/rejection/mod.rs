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
//! | the request lacks its credential ([`ApiKey`](crate::ApiKey)) | 401 | none |
//! | another key is missing, or a key is unusable | 400 | none |
//! | the address or the key is denied, or a policy is blocked | 403 | none |
//! | a hold has reached its longest age before there was a response | 504 | none |
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
//!         Reason::QuotaExceeded => {
//!             (denial.status(), Html("<h1>Please slow down</h1>")).into_response()
//!         }
//!         _ => ProblemJson::default().reject(parts, denial),
//!     }
//! }
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let limit =
//!     RateLimitLayer::new(limiter, Policy::per_second("all", 100)?, GlobalKey)
//!         .with_rejection(slow_down);
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```

mod denial;
mod from_check;
#[cfg(feature = "grpc")]
mod grpc;
mod problem;

use std::{mem, time::Duration};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Extensions, HeaderValue, Method, Response, StatusCode, request::Parts};

use crate::decision::Decision;
use crate::headers::{HeaderWriter, whole_seconds};

#[cfg(feature = "grpc")]
pub use self::grpc::GrpcStatus;
pub use self::{
    denial::{Denial, Reason},
    problem::ProblemJson,
};

/// Builds the response to a refused request.
///
/// Implemented by [`ProblemJson`], the default, [`PlainText`],
/// [`EmptyBody`], and by closures `Fn(&Parts, &Denial) -> Response<B>`, whose arguments need no types
/// in [`from_fn`]; feature `grpc` adds `GrpcStatus`. The layer then adds the fields that the response lacks: RateLimit,
/// `Retry-After`, `Cache-Control: no-store`, and `WWW-Authenticate` if the status is 401. So a closure may also return
/// the response of the denial, `denial.clone().into_response()` in axum, whose fields are in the style of the layer.
///
/// # Examples
///
/// ```
/// use axum::body::Body;
/// use http::{Response, request::Parts};
/// use tollgate::{
///     GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, rejection::Denial,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let layer =
///     RateLimitLayer::new(limiter, Policy::per_second("all", 100)?, GlobalKey)
///         .with_rejection(|_: &Parts, denial: &Denial| {
///             let mut response = Response::new(Body::from("slow down"));
///             *response.status_mut() = denial.status();
///             response
///         });
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not build a response with a body of type `{B}`",
    label = "the rejection of this layer cannot make the body of this service",
    note = "`ProblemJson`, the default, and `PlainText` need `{B}: From<Bytes>`",
    note = "otherwise call `.with_rejection(EmptyBody::default())`, which needs `{B}: Default`, or give it a function \
            `fn(&Parts, &Denial) -> Response<{B}>`"
)]
pub trait Rejection<B>: Send + Sync + 'static {
    /// Builds the response to the request with the head `parts`.
    fn reject(&self, parts: &Parts, denial: &Denial) -> Response<B>;
}

#[diagnostic::do_not_recommend]
impl<B, F> Rejection<B> for F
where
    F: Fn(&Parts, &Denial) -> Response<B> + Send + Sync + 'static,
{
    fn reject(&self, parts: &Parts, denial: &Denial) -> Response<B> {
        self(parts, denial)
    }
}

/// Creates a rejection that calls `f`: a closure whose arguments need no types.
///
/// # Examples
///
/// ```
/// use axum::body::Body;
/// use http::Response;
/// use tollgate::{GlobalKey, MemoryStore, Policy, RateLimitLayer, rejection};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let slow_down = rejection::from_fn(|_, denial| {
///     let mut response = Response::new(Body::from("slow down"));
///     *response.status_mut() = denial.status();
///     response
/// });
/// let limit = RateLimitLayer::new(
///     MemoryStore::new(),
///     Policy::per_second("all", 100)?,
///     GlobalKey,
/// )
/// .with_rejection(slow_down);
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
pub fn from_fn<B>(f: impl Fn(&Parts, &Denial) -> Response<B> + Send + Sync + 'static) -> impl Rejection<B> {
    f
}

impl Denial {
    /// Builds the response to the request with the head `parts`, with `rejection` and `writer`.
    ///
    /// `rejection` builds the response. The fields that the response lacks are then added in the style of `writer`:
    /// RateLimit, `Retry-After`, `Cache-Control: no-store`, and `WWW-Authenticate` if a credential is missing and the
    /// status is 401. The response's extensions contain the denial and, after a check, the [`Decision`].
    ///
    /// The layer calls this method for refused requests. A handler of axum can return the denial itself, unless it
    /// needs another rejection or style. A rejection that calls this method for the denial that it was given leaves the
    /// RateLimit fields to the layer, in the style of the layer.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use tollgate::{
    ///     Error, HeaderStyle, Limiter, Policy, headers::HeaderWriter,
    ///     rejection::PlainText,
    /// };
    ///
    /// /// A handler of plain hyper.
    /// async fn export(
    ///     request: Request<()>,
    ///     limiter: &Limiter,
    ///     daily: &Policy,
    /// ) -> Response<Bytes> {
    ///     let (parts, ()) = request.into_parts();
    ///     let checked = limiter.check("exports", daily, 1).await.map_err(Into::into);
    ///     match checked.and_then(|decision| decision.into_result()) {
    ///         Ok(()) => Response::new(Bytes::from("a,b,c")),
    ///         Err(denial) => denial.respond(
    ///             &PlainText::default(),
    ///             &HeaderWriter::new(HeaderStyle::XRateLimitDelta),
    ///             &parts,
    ///         ),
    ///     }
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::ConfigError> {
    /// let (limiter, daily) = (
    ///     Limiter::new(tollgate::MemoryStore::new()),
    ///     Policy::per_day("exports", 1)?,
    /// );
    /// assert_eq!(export(Request::default(), &limiter, &daily).await.status(), 200);
    /// let denied = export(Request::default(), &limiter, &daily).await;
    /// assert_eq!(
    ///     (denied.status().as_u16(), &denied.headers()["retry-after"]),
    ///     (429, &"86400".parse().unwrap())
    /// );
    /// # Ok(())
    /// # }
    /// ```
    pub fn respond<B, R>(mut self, rejection: &R, writer: &HeaderWriter, parts: &Parts) -> Response<B>
    where
        R: Rejection<B> + ?Sized,
    {
        let leaves_fields = mem::replace(&mut self.leaves_fields, true);
        // The jitter is drawn once, so that all fields and the body contain the same wait.
        let jitter = if leaves_fields { Duration::ZERO } else { writer.draw(self.retry_after) };
        self.retry_after = self.retry_after.map(|wait| wait.saturating_add(jitter));
        let mut response = match writer.hides_waits() {
            true => rejection.reject(parts, &self.clone().hidden()),
            false => rejection.reject(parts, &self),
        };
        self.leaves_fields = leaves_fields;
        match self.decision() {
            Some(decision) if !leaves_fields => writer.apply_denied(decision, jitter, response.headers_mut()),
            _ => writer.insert_wait(self.retry_after, response.headers_mut()),
        }
        if let Some(challenge) = self.challenge()
            && response.status() == StatusCode::UNAUTHORIZED
        {
            response.headers_mut().entry(WWW_AUTHENTICATE).or_insert_with(|| challenge.clone());
        }
        let without_verdict = || self.source.map(|source| Decision::without_store(false, source));
        if let Some(decision) = self.decision().cloned().or_else(without_verdict) {
            insert_if_strictest(decision, response.extensions_mut());
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Inserts `decision`, unless the decision of another layer in `extensions` is stricter. Returns whether there was a
/// decision of another layer.
#[inline]
pub(crate) fn insert_if_strictest(decision: Decision, extensions: &mut Extensions) -> bool {
    let Some(other) = extensions.insert(decision) else { return false };
    if extensions.get::<Decision>().is_some_and(|decision| other.strictness() > decision.strictness()) {
        extensions.insert(other);
    }
    true
}

/// Builds a response. A response to HEAD has the same fields and no content. Its `Content-Length` is set here, because
/// a server would derive 0 from the empty body.
fn respond<B: From<Bytes>>(
    parts: &Parts,
    status: StatusCode,
    content_type: HeaderValue,
    content: &[u8],
) -> Response<B> {
    let (body, length) = match parts.method {
        Method::HEAD => (Bytes::new(), Some(content.len())),
        _ => (Bytes::copy_from_slice(content), None),
    };
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Responds to refused requests with a line of `text/plain`: "rate limit exceeded; retry after 3s".
///
/// The text contains nothing about keys or the store. Works with any body type that implements `From<Bytes>`.
///
/// # Examples
///
/// ```
/// use axum::body::Body;
/// use tollgate::{
///     GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
///     rejection::PlainText,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let layer =
///     RateLimitLayer::new(limiter, Policy::per_second("all", 100)?, GlobalKey)
///         .with_rejection(PlainText::default());
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
/// use tollgate::{
///     GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
///     rejection::EmptyBody,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let limit =
///     RateLimitLayer::new(limiter, Policy::per_second("all", 100)?, GlobalKey)
///         .with_rejection(EmptyBody::default());
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
