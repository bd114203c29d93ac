//! Rejections for body types without `From<Bytes>`.

use std::fmt;

use bytes::Bytes;
use http::{Response, request::Parts};

use super::{denial::Denial, plain::PlainText, problem::ProblemJson, respond::Rejection};

/// A rejection with another body type, made by [`ProblemJson::map_body`] or [`PlainText::map_body`].
#[derive(Clone, Copy)]
pub struct MapBody<R, F> {
    rejection: R,
    map: F,
}

impl<B, R, F> Rejection<B> for MapBody<R, F>
where
    R: Rejection<Bytes>,
    F: Fn(Bytes) -> B + Send + Sync + 'static,
{
    fn reject(&self, parts: &Parts, denial: &Denial) -> Response<B> {
        self.rejection.reject(parts, denial).map(&self.map)
    }
}

impl<R: fmt::Debug, F> fmt::Debug for MapBody<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapBody").field("rejection", &self.rejection).finish_non_exhaustive()
    }
}

impl ProblemJson {
    /// Converts the body of the response with `map`, for body types without `From<Bytes>`, such as a `BoxBody` of
    /// hyper.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full, combinators::BoxBody};
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, ProblemJson, RateLimitLayer};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// type Body = BoxBody<Bytes, Infallible>;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::ConfigError> {
    /// async fn hello(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    ///     Ok(Response::new(Full::from("hello").boxed()))
    /// }
    ///
    /// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), Policy::per_second("all", 1)?, GlobalKey)
    ///     .with_rejection(ProblemJson::default().map_body(|bytes| Full::new(bytes).boxed()));
    /// let service = ServiceBuilder::new().layer(limit).service(service_fn(hello));
    ///
    /// for status in [200, 429] {
    ///     let Ok(response) = service.clone().oneshot(Request::new(Body::default())).await;
    ///     assert_eq!(response.status(), status);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn map_body<B, F: Fn(Bytes) -> B>(self, map: F) -> MapBody<Self, F> {
        MapBody { rejection: self, map }
    }
}

impl PlainText {
    /// Converts the body of the response with `map`; see [`ProblemJson::map_body`].
    #[must_use]
    pub fn map_body<B, F: Fn(Bytes) -> B>(self, map: F) -> MapBody<Self, F> {
        MapBody { rejection: self, map }
    }
}
