//! A response body that carries what its call holds.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::limiter::Hold;

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
