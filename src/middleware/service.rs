//! The service: takes the toll, then calls the inner service.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    check::Check,
    key::KeyExtractor,
    limiter::Sent,
    middleware::{
        config::{Config, Step},
        future::ResponseFuture,
    },
    rejection::{Denial, Rejection, extensions::insert_if_strictest},
};

/// Middleware that lets a request pass only if it can pay; see [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Readiness is the inner service's. A request that is refused never reaches it; errors pass through untouched.
pub struct RateLimit<S, K, R = crate::ProblemJson> {
    inner: S,
    config: Arc<Config<K, R>>,
}

impl<S, K, R> RateLimit<S, K, R> {
    pub(crate) fn new(inner: S, config: Arc<Config<K, R>>) -> Self {
        Self { inner, config }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the inner service out.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, R, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Rejection<ResBody>,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = ResponseFuture<S, S::Future, K, R, ReqBody, ResBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let mut check = Check::empty();
        let failure = match self.config.begin(&parts, &mut check) {
            Step::Pass => return ResponseFuture::pass(self.inner.call(Request::from_parts(parts, body))),
            Step::Refuse(reason) => {
                self.release();
                return ResponseFuture::refuse(self.config.refuse(&parts, Denial::new(reason.into())));
            }
            Step::Check(failure) => failure,
        };
        self.config.warn_on_double_charge(&mut parts, &check);
        match self.config.limiter.decide(&mut check, failure) {
            // Known at once: no clone is needed.
            Sent::Decided(decision) => {
                if decision.is_allowed() {
                    insert_if_strictest(decision.clone(), &mut parts.extensions);
                    let response = self.inner.call(Request::from_parts(parts, body));
                    ResponseFuture::call(response, decision, self.config.writer)
                } else {
                    self.release();
                    ResponseFuture::refuse(self.config.refuse(&parts, Denial::of(decision)))
                }
            }
            Sent::Waiting(check) => {
                // The instance that was polled ready goes into the future, its clone stays: a reservation that
                // `poll_ready` made belongs to the instance (tower-rs/tower, `filter`; tower-rs/tower-http#561).
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                let request = Request::from_parts(parts, body);
                ResponseFuture::check(check, ready, request, Arc::clone(&self.config))
            }
        }
    }
}

impl<S: Clone, K, R> RateLimit<S, K, R> {
    /// Gives back what `poll_ready` reserved for a request that was refused: the reservation is the instance's, and
    /// this one may live on without another request, keeping its place from all others.
    fn release(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl<S: Clone, K, R> Clone for RateLimit<S, K, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), config: Arc::clone(&self.config) }
    }
}

impl<S: fmt::Debug, K, R> fmt::Debug for RateLimit<S, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).field("config", &self.config).finish()
    }
}
