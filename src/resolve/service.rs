//! The service: resolves a request, then calls the inner service.

use std::{
    fmt,
    future::Future,
    mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, request::Parts};
use tower_service::Service;

use super::{future::ResolveFuture, value::IntoResolved};
use crate::observe::Reporter;

/// The settings of a layer and its services.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) timeout: Duration,
    pub(super) reporter: Reporter,
}

/// Middleware that awaits a closure and inserts what it finds into the request's extensions; made by
/// [`resolve`](super::resolve).
///
/// The service is ready when the inner service is ready. Each request reaches the inner service, resolved or not.
/// Responses and errors of the inner service are returned unchanged.
pub struct Resolve<S, F> {
    inner: S,
    find: Arc<F>,
    settings: Arc<Settings>,
}

impl<S, F> Resolve<S, F> {
    pub(super) fn new(inner: S, find: Arc<F>, settings: Arc<Settings>) -> Self {
        Self { inner, find, settings }
    }

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

impl<S, F, L, B> Service<Request<B>> for Resolve<S, F>
where
    S: Service<Request<B>> + Clone,
    F: Fn(&Parts) -> L,
    L: Future<Output: IntoResolved>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResolveFuture<S, S::Future, L, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let find = (self.find)(&parts);
        // The instance that was polled ready moves into the future, and a clone takes its place here.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let Settings { timeout, reporter } = &*self.settings;
        ResolveFuture::new(find, *timeout, reporter.clone(), ready, Request::from_parts(parts, body))
    }
}

impl<S: Clone, F> Clone for Resolve<S, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), find: Arc::clone(&self.find), settings: Arc::clone(&self.settings) }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for Resolve<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolve").field("inner", &self.inner).field("settings", &self.settings).finish_non_exhaustive()
    }
}
