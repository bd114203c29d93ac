//! The service, and the future of a call: wait for its turn and for a place of the inner service, call it, obey its
//! response.

use std::task::{Context, Poll, ready};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::request::{ThrottleCost, ThrottleKey};
use super::response::{HeldCall, ResponseHead};
use super::turn::{Turns, Waited};
use super::{layer::ThrottleLayer, throttled::BoxError, upstream::Upstream};
use crate::key::Key;

/// Client whose calls wait for their turn; made by [`ThrottleLayer`].
///
/// The service is always ready. A call asks a clone of the inner service to be ready when its turn has come, and not
/// before: a call that waits reserves nothing, such as a place in the buffer of a channel or a permit of a concurrency
/// limit. The clone that was polled ready is the one that is called.
///
/// Returns the response of the inner service unchanged, and its errors in a box:
/// `error.downcast_ref::<reqwest::Error>()`. The error of a call that was not made is
/// [`Throttled`](super::Throttled).
pub struct Throttle<S, K = Key, C = u64, H = ()> {
    inner: S,
    layer: ThrottleLayer<K, C, H>,
}

impl<S, K, C, H> Throttle<S, K, C, H> {
    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: Clone, K, C, H> Layer<S> for ThrottleLayer<K, C, H> {
    type Service = Throttle<S, K, C, H>;

    fn layer(&self, inner: S) -> Self::Service {
        Throttle { inner, layer: self.clone() }
    }
}

impl<S, K, C, H, Req> Service<Req> for Throttle<S, K, C, H>
where
    S: Service<Req, Error: Into<BoxError>> + Clone,
    K: ThrottleKey<Req>,
    C: ThrottleCost<Req>,
    H: ResponseHead<S::Response>,
{
    type Response = H::Response;
    type Error = BoxError;
    type Future = ThrottleFuture<S, S::Future, Req, H>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (key, cost) = (self.layer.key.key(&request), self.layer.cost.cost(&request));
        let settings = &self.layer.settings;
        let upstream = Upstream::new(Arc::clone(settings), key.clone(), Arc::clone(&self.layer.head));
        // A call that is exempt waits for no turn, but a layer with a mistake makes no call at all.
        let turns = (cost > 0 || settings.validate().is_err()).then(|| {
            let mut computed = Vec::new();
            self.layer.cost.further_costs(&request, &mut computed);
            Turns::new(Arc::clone(settings), key, settings.costs(cost, computed))
        });
        ThrottleFuture::new(turns, self.inner.clone(), request, upstream)
    }
}

impl<S: Clone, K, C, H> Clone for Throttle<S, K, C, H> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S: fmt::Debug, K, C, H> fmt::Debug for Throttle<S, K, C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

pin_project! {
    /// The future of [`Throttle`].
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
