//! Where a response has its status and its fields.

use http::{HeaderMap, Response, StatusCode};

/// Finds the status and the header fields of a response: [`HttpHead`], or a closure
/// `Fn(&Res) -> (StatusCode, &HeaderMap)`.
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, Response, StatusCode};
/// use tollgate::throttle::{HttpHead, ResponseHead};
///
/// let response = Response::new("hello");
/// assert_eq!(HttpHead.head(&response).0, StatusCode::OK);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find the status and the fields of a response of type `{Res}`",
    note = "for responses other than `http::Response`, such as those of reqwest, call \
            `.with_response_head(|response: &reqwest::Response| (response.status(), response.headers()))`"
)]
pub trait ResponseHead<Res> {
    /// The status and the fields of `response`.
    fn head<'a>(&self, response: &'a Res) -> (StatusCode, &'a HeaderMap);
}

/// The head of an [`http::Response`], such as those of hyper and tonic.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpHead;

impl<B> ResponseHead<Response<B>> for HttpHead {
    fn head<'a>(&self, response: &'a Response<B>) -> (StatusCode, &'a HeaderMap) {
        (response.status(), response.headers())
    }
}

impl<Res, F: Fn(&Res) -> (StatusCode, &HeaderMap)> ResponseHead<Res> for F {
    fn head<'a>(&self, response: &'a Res) -> (StatusCode, &'a HeaderMap) {
        self(response)
    }
}
