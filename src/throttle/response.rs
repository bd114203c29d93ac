//! Where a response has its status and its fields, and the body that carries what its call holds to its end.

use std::task::{Context, Poll, ready};
use std::{fmt, pin::Pin};

use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::limiter::Hold;

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

/// What a call holds until its response has ended. A call without a response ends its hold as the policy says about
/// holds that are not settled.
#[derive(Debug)]
pub struct HeldCall {
    hold: Option<Box<Hold>>,
    cost: u64,
    is_answered: bool,
}

impl HeldCall {
    pub(super) fn new(hold: Hold, cost: u64) -> Self {
        Self { hold: Some(Box::new(hold)), cost, is_answered: false }
    }

    /// Gives the units back, because the call is not made.
    pub(super) fn release(mut self) {
        if let Some(hold) = self.hold.take() {
            // A settlement that is dropped is sent in the background.
            drop(hold.release());
        }
    }

    /// Notes that the call has a response: all units are settled as they were held when this is dropped.
    pub(super) fn answered(self) -> Self {
        let mut answered = self;
        answered.is_answered = true;
        answered
    }
}

impl Drop for HeldCall {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take().filter(|_| self.is_answered) {
            drop(hold.settle(self.cost));
        }
    }
}

pin_project! {
    /// The response body of a layer that [holds until the end](crate::ThrottleLayer::hold_until_end): the body of the
    /// client. The hold of the call ends when the body has ended, failed or been dropped.
    ///
    /// Frames, trailers, the size hint and the end are those of the body of the client.
    pub struct ThrottledBody<B> {
        #[pin]
        body: B,
        held: Option<HeldCall>,
    }
}

impl<B: Body> ThrottledBody<B> {
    pub(super) fn new(body: B, held: Option<HeldCall>) -> Self {
        let held = held.filter(|_| !body.is_end_stream());
        Self { body, held }
    }
}

impl<B: Body> Body for ThrottledBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if this.held.is_some() && (!matches!(frame, Some(Ok(_))) || this.body.is_end_stream()) {
            // A reader that knows that this frame is the last one does not poll again.
            *this.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: fmt::Debug> fmt::Debug for ThrottledBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledBody").field("body", &self.body).field("is_held", &self.held.is_some()).finish()
    }
}
