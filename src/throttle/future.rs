//! The future of a call: wait for its turn, call the inner service, obey its response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{response::ResponseHead, service::BoxError, throttled::Throttled, upstream::Upstream};

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
        /// Waits for the turn, and keeps the service that was polled ready.
        Waiting { waiting: Option<Box<Waiting<S, Req, H>>> },
        /// Waits for the inner service.
        Calling {
            #[pin]
            response: F,
            upstream: Upstream<H>,
        },
    }
}

/// A request that waits for its turn. Boxed, because it has the whole request.
struct Waiting<S, Req, H> {
    turn: Turn,
    service: S,
    request: Req,
    upstream: Upstream<H>,
}

type Turn = Pin<Box<dyn Future<Output = Result<(), Throttled>> + Send>>;

const POLLED_AGAIN: &str = "`ThrottleFuture` polled after completion";

impl<S, F, Req, H> ThrottleFuture<S, F, Req, H> {
    pub(super) fn wait(turn: Turn, service: S, request: Req, upstream: Upstream<H>) -> Self {
        let waiting = Waiting { turn, service, request, upstream };
        Self { state: State::Waiting { waiting: Some(Box::new(waiting)) } }
    }

    pub(super) fn call(response: F, upstream: Upstream<H>) -> Self {
        Self { state: State::Calling { response, upstream } }
    }
}

impl<S, F, Req, H, Res, E> Future for ThrottleFuture<S, F, Req, H>
where
    S: Service<Req, Response = Res, Error = E, Future = F>,
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    H: ResponseHead<Res>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Waiting { waiting } => {
                    let turn = &mut waiting.as_mut().expect(POLLED_AGAIN).turn;
                    let result = ready!(turn.as_mut().poll(cx));
                    let Waiting { mut service, request, upstream, .. } = *waiting.take().expect(POLLED_AGAIN);
                    match result {
                        Ok(()) => State::Calling { response: service.call(request), upstream },
                        Err(throttled) => return Poll::Ready(Err(throttled.into())),
                    }
                }
                StateProj::Calling { response, upstream } => {
                    let response = ready!(response.poll(cx)).map_err(Into::into)?;
                    upstream.obey(&response);
                    return Poll::Ready(Ok(response));
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
