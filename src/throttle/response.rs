//! Where a response has its status and its fields, and what carries a hold to its end.

use http::{HeaderMap, Response, StatusCode};
use http_body::Body;

use super::body::{HeldCall, ThrottledBody};

/// Finds the status and the header fields of a response: `()`, a closure `Fn(&Res) -> (StatusCode, &HeaderMap)`, or
/// [`HttpBody`]. Not exported: only this crate implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find the status and the fields of a response of type `{Res}`",
    note = "around reqwest, enable the feature `reqwest` of tollgate",
    note = "for responses of other clients, call \
            `.with_response_head(|response: &MyResponse| (response.status(), response.headers()))`"
)]
pub trait ResponseHead<Res> {
    /// The response of the throttled client: that of the inner client, except for [`HttpBody`].
    type Response;

    /// The status and the fields of `response`.
    fn head<'a>(&self, response: &'a Res) -> (StatusCode, &'a HeaderMap);

    /// The response of the throttled client, which carries `held` if it can.
    fn finish(&self, response: Res, held: Option<HeldCall>) -> Self::Response;
}

/// The head of an [`http::Response`], such as those of hyper and tonic.
impl<B> ResponseHead<Response<B>> for () {
    type Response = Response<B>;

    fn head<'a>(&self, response: &'a Response<B>) -> (StatusCode, &'a HeaderMap) {
        (response.status(), response.headers())
    }

    fn finish(&self, response: Response<B>, _: Option<HeldCall>) -> Response<B> {
        response
    }
}

/// The head of a response of reqwest.
#[cfg(feature = "reqwest")]
impl ResponseHead<reqwest::Response> for () {
    type Response = reqwest::Response;

    fn head<'a>(&self, response: &'a reqwest::Response) -> (StatusCode, &'a HeaderMap) {
        (response.status(), response.headers())
    }

    fn finish(&self, response: reqwest::Response, _: Option<HeldCall>) -> reqwest::Response {
        response
    }
}

/// The head of an [`http::Response`] whose body carries what its call holds, after
/// [`hold_until_end`](crate::ThrottleLayer::hold_until_end).
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpBody;

impl<B: Body> ResponseHead<Response<B>> for HttpBody {
    type Response = Response<ThrottledBody<B>>;

    fn head<'a>(&self, response: &'a Response<B>) -> (StatusCode, &'a HeaderMap) {
        (response.status(), response.headers())
    }

    fn finish(&self, response: Response<B>, held: Option<HeldCall>) -> Response<ThrottledBody<B>> {
        response.map(|body| ThrottledBody::new(body, held))
    }
}

impl<Res, F: Fn(&Res) -> (StatusCode, &HeaderMap)> ResponseHead<Res> for F {
    type Response = Res;

    fn head<'a>(&self, response: &'a Res) -> (StatusCode, &'a HeaderMap) {
        self(response)
    }

    fn finish(&self, response: Res, _: Option<HeldCall>) -> Res {
        response
    }
}
