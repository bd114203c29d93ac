//! The service: charges a request, then calls the instance of the inner service that was polled ready.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::{fmt, marker::PhantomData, mem, sync::Arc};

use http::{Request, Response};
use tower_service::Service;

use super::future::{CutOff, LaterService, ResponseFuture};
use super::{admitted::discard, config::Config, holding::CarryHolds, prepare::Prepared};
use crate::rejection::{Denial, Rejection};
use crate::{check::Check, key::KeyExtractor, limiter::Sent};

/// Middleware that forwards a request only if its charges fit; made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// The service is ready when the inner service is ready. A refused request never reaches the inner service. Errors of
/// the inner service are returned unchanged.
///
/// # Examples
///
/// Around a plain tower service over HTTP, without axum:
///
/// ```
/// use std::convert::Infallible;
///
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::ConfigError> {
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     Policy::per_minute("all", 1)?,
///     GlobalKey,
/// );
/// let hello = service_fn(|_: Request<()>| async {
///     Ok::<_, Infallible>(Response::new(Bytes::from("hello")))
/// });
/// let service = limit.layer(hello);
/// for status in [200, 429] {
///     let Ok(response) = service.clone().oneshot(Request::new(())).await;
///     assert_eq!(response.status(), status);
/// }
/// # Ok(())
/// # }
/// ```
pub struct RateLimit<S, K, R = crate::ProblemJson, B = ()> {
    inner: S,
    config: Arc<Config<K, R>>,
    body: PhantomData<fn() -> B>,
}

impl<S, K, R, B> RateLimit<S, K, R, B> {
    pub(crate) fn new(inner: S, config: Arc<Config<K, R>>) -> Self {
        Self { inner, config, body: PhantomData }
    }
}

impl<S, K, R, B, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, K, R, B>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Rejection<ResBody>,
    B: CarryHolds<ResBody>,
{
    type Response = Response<B::Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S, S::Future, K, R, ReqBody, ResBody, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        // Keys, costs and rejections are code of the service's author, which may panic.
        let readied = Readied::new(&mut self.inner);
        let (mut parts, body) = request.into_parts();
        let mut check = Check::empty();
        // The request uses these rules to its end, even if others replace them meanwhile.
        let rules = self.config.rules.load();
        let failure = match self.config.prepare(&rules, &parts, &mut check, B::can_hold) {
            Prepared::Exempt => {
                self.config.add_bill(&mut parts);
                return ResponseFuture::pass(readied.call(Request::from_parts(parts, body)));
            }
            Prepared::Refused(reason) => {
                readied.release();
                return ResponseFuture::refuse(self.config.refuse(&rules, &parts, Denial::unchecked(*reason)));
            }
            Prepared::Check(failure) => failure,
        };
        self.config.warn_on_double_charge(&mut parts, &check);
        let tab = self.config.open_tab(&mut parts, &check);
        let (limiter, observed) = (&self.config.limiter, || rules.observed(&parts));
        let sent = match rules.max_wait {
            None => limiter.decide(&mut check, failure, observed),
            Some(max_wait) => limiter.decide_within(&mut check, failure, max_wait, observed),
        };
        match sent {
            // The store has answered at once, so the inner service that was polled ready is called without a clone.
            Sent::Decided(decision) => {
                if decision.is_allowed() {
                    let admitted = self.config.admit(&rules, decision, tab, &mut parts.extensions);
                    let cut_off = CutOff::of(&admitted, &self.config, || rules.keep(), || parts.clone());
                    ResponseFuture::call(readied.call(Request::from_parts(parts, body)), admitted, cut_off)
                } else {
                    discard(tab);
                    readied.release();
                    ResponseFuture::refuse(self.config.refuse(&rules, &parts, Denial::of(decision)))
                }
            }
            Sent::Waiting(check) => {
                // The instance that was polled ready moves into the future, and a clone takes its place here. A request
                // that waits for its turn keeps no reservation from others.
                let is_ready = !check.is_queued();
                let service = if is_ready {
                    readied.take()
                } else {
                    readied.release();
                    self.inner.clone()
                };
                let service = LaterService { service, is_ready };
                let request = Request::from_parts(parts, body);
                ResponseFuture::check(check, service, request, tab, Arc::clone(&self.config), rules.keep())
            }
        }
    }
}

impl<S: Clone, K, R, B> Clone for RateLimit<S, K, R, B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), config: Arc::clone(&self.config), body: PhantomData }
    }
}

impl<S: fmt::Debug, K, R, B> fmt::Debug for RateLimit<S, K, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).field("config", &self.config).finish()
    }
}

/// The inner service after `poll_ready`, which may have reserved something in it: a permit, a place in a buffer.
///
/// Exactly one of its methods ends the reservation. If a closure of the service's own code panics before (a key, a
/// cost, a rejection), the drop ends it: the service may live on without another request.
struct Readied<'a, S: Clone> {
    inner: &'a mut S,
    is_reserved: bool,
}

impl<'a, S: Clone> Readied<'a, S> {
    pub(super) fn new(inner: &'a mut S) -> Self {
        Self { inner, is_reserved: true }
    }

    /// Calls the instance that was polled ready.
    #[inline]
    pub(super) fn call<Request>(mut self, request: Request) -> S::Future
    where
        S: Service<Request>,
    {
        self.is_reserved = false;
        self.inner.call(request)
    }

    /// Moves the instance that was polled ready out, and leaves a clone. The reservation belongs to that instance, not
    /// to the clone (tower-rs/tower-http#561).
    pub(super) fn take(mut self) -> S {
        let clone = self.inner.clone();
        self.is_reserved = false;
        mem::replace(self.inner, clone)
    }

    /// Gives the reservation back, by replacing the instance with a clone. Otherwise an idle service would hold the
    /// reservation until its next request.
    pub(super) fn release(mut self) {
        self.is_reserved = false;
        *self.inner = self.inner.clone();
    }
}

impl<S: Clone> Drop for Readied<'_, S> {
    fn drop(&mut self) {
        if self.is_reserved {
            // A second panic would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| *self.inner = self.inner.clone()));
        }
    }
}
