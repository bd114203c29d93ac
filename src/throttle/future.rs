//! The future of a call: wait for its turn and for a place of the inner service, call it, obey its response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    body::HeldCall,
    response::ResponseHead,
    throttled::BoxError,
    turn::{Turns, Waited},
    upstream::Upstream,
};

pin_project! {
    /// The future of [`Throttle`](super::Throttle).
    ///
    /// # Panics
    ///
    /// Panics if polled after completion.
    ///
    /// # Cancel safety
    ///
    /// Nothing is charged before the first poll. A future that is dropped while it waits for its turn leaves the queue
    /// and charges nothing, unless the store is being asked for it: it may then have been charged. If the future is
    /// dropped later, the charge stays, and a pause in the response is not obeyed.
    pub struct ThrottleFuture<S, F, Req, H> {
        #[pin]
        state: State<S, F, Req, H>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, Req, H> {
        /// Waits for the turn, and then for a place of the inner service.
        Waiting { waiting: Option<Box<Waiting<S, Req, H>>> },
        /// Waits for the inner service.
        Calling {
            #[pin]
            response: F,
            upstream: Upstream<H>,
            held: Option<HeldCall>,
        },
    }
}

/// A request that waits. Boxed, because it has the whole request.
struct Waiting<S, Req, H> {
    /// `None` for a request that is exempt.
    turns: Option<Turns>,
    /// The service, of which no place is taken before the turn.
    service: S,
    request: Req,
    upstream: Upstream<H>,
}

const POLLED_AGAIN: &str = "`ThrottleFuture` polled after completion";

impl<S, F, Req, H> ThrottleFuture<S, F, Req, H> {
    pub(super) fn new(turns: Option<Turns>, service: S, request: Req, upstream: Upstream<H>) -> Self {
        let waiting = Waiting { turns, service, request, upstream };
        Self { state: State::Waiting { waiting: Some(Box::new(waiting)) } }
    }
}

impl<S, Req, H> Waiting<S, Req, H>
where
    S: Service<Req, Error: Into<BoxError>> + Clone,
{
    /// Waits until the call may be made and the service is ready. Returns what the call holds.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeldCall>, BoxError>> {
        let Some(turns) = &mut self.turns else {
            return self.service.poll_ready(cx).map(|ready| ready.map(|()| None).map_err(Into::into));
        };
        loop {
            ready!(turns.poll_turn(cx))?;
            match self.service.poll_ready(cx).map_err(Into::<BoxError>::into)? {
                Poll::Ready(()) => {}
                Poll::Pending => return turns.poll_late(cx).map(|throttled| Err(throttled.into())),
            }
            match turns.end() {
                Waited::InTime(held) => return Poll::Ready(Ok(held)),
                // The place goes to another call meanwhile.
                Waited::TooLong => self.service = self.service.clone(),
            }
        }
    }
}

impl<S, F, Req, H, Res, E> Future for ThrottleFuture<S, F, Req, H>
where
    S: Service<Req, Response = Res, Error = E, Future = F> + Clone,
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    H: ResponseHead<Res>,
{
    type Output = Result<H::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Waiting { waiting } => {
                    let result = ready!(waiting.as_mut().expect(POLLED_AGAIN).poll(cx));
                    let Waiting { mut service, request, upstream, .. } = *waiting.take().expect(POLLED_AGAIN);
                    let held = result?;
                    State::Calling { response: service.call(request), upstream, held }
                }
                StateProj::Calling { response, upstream, held } => {
                    let result = ready!(response.poll(cx));
                    // Taken before the result is read, so that what a call holds that has failed ends now.
                    let held = held.take();
                    let response = result.map_err(Into::into)?;
                    upstream.obey(&response);
                    return Poll::Ready(Ok(upstream.finish(response, held.map(HeldCall::answered))));
                }
            };
            state.set(next);
        }
    }
}

impl<S, F, Req, H> fmt::Debug for ThrottleFuture<S, F, Req, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThrottleFuture")
    }
}
