//! The service: waits for the turn of a request, then calls the inner service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    future::ThrottleFuture,
    layer::ThrottleLayer,
    request::{ThrottleCost, ThrottleKey},
    response::ResponseHead,
    throttled::BoxError,
    turn::Turns,
    upstream::Upstream,
};
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

    /// Returns the inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Unwraps the inner service.
    pub fn into_inner(self) -> S {
        self.inner
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
