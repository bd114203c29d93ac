//! The response future: wait for the decision, call the inner service, add the fields.

use std::task::{Context, Poll, ready};
use std::{fmt, future::Future, marker::PhantomData, pin::Pin, sync::Arc};

use http::{Request, Response, request::Parts};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admitted::{Admitted, discard};
use super::holding::{Bill, CarryHolds, HeldTooLong, Tab};
use super::{config::Config, rules::KeptRules};
use crate::rejection::{Denial, Rejection};
use crate::{decision::Decision, limiter::DecisionFuture};

pin_project! {
    /// The response future of [`RateLimit`](crate::middleware::RateLimit).
    ///
    /// # Panics
    ///
    /// Panics if polled after completion.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped while it waits for the store, the check may have been charged without a response. The
    /// check is never charged twice, and the inner service is not called. If the future is dropped later, the charge
    /// stays, and units that the check [holds](crate::RateLimitLayer::with_settlement) end as those of a request that
    /// fails.
    pub struct ResponseFuture<S, F, K, R, ReqBody, ResBody, B = ()> {
        #[pin]
        state: State<S, F, K, R, ReqBody, ResBody>,
        body: PhantomData<fn() -> B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, K, R, ReqBody, ResBody> {
        /// Waits for the decision, and keeps the service that was polled ready.
        Checking { waiting: Option<Box<Waiting<S, K, R, ReqBody>>> },
        /// Waits for the inner service.
        Calling {
            #[pin]
            response: F,
            admitted: Option<Admitted>,
            cut_off: Option<Box<CutOff<K, R>>>,
        },
        /// Holds the response to a refused request.
        Refused { response: Option<Response<ResBody>> },
    }
}

/// A request that waits for its decision. Boxed, so that the future of a request that does not wait is small.
struct Waiting<S, K, R, ReqBody> {
    asked: Asked,
    /// The decision, while the service is not ready.
    decision: Option<Decision>,
    service: LaterService<S>,
    request: Request<ReqBody>,
    config: Arc<Config<K, R>>,
    rules: KeptRules,
}

/// The service that a request calls once it is allowed.
pub(crate) struct LaterService<S> {
    pub(crate) service: S,
    /// Whether the service was polled ready for this request.
    pub(crate) is_ready: bool,
}

/// What refuses a request with a hold that gets too old before the service has answered.
pub(crate) struct CutOff<K, R> {
    config: Arc<Config<K, R>>,
    rules: KeptRules,
    request: Parts,
}

impl<K, R> CutOff<K, R> {
    /// `None` if no hold of the request may get too old.
    pub(crate) fn of(
        admitted: &Admitted,
        config: &Arc<Config<K, R>>,
        rules: impl FnOnce() -> KeptRules,
        request: impl FnOnce() -> Parts,
    ) -> Option<Box<Self>> {
        admitted.can_get_too_old().then(|| {
            let mut request = request();
            // The bill of an upgraded connection lives for as long as its handler keeps it.
            request.extensions.remove::<Bill>();
            Box::new(Self { config: Arc::clone(config), rules: rules(), request })
        })
    }

    fn refuse<B>(&self, HeldTooLong { policy, longest }: HeldTooLong) -> Response<B>
    where
        R: Rejection<B>,
    {
        let rules = self.rules.load(&self.config.rules);
        self.config.refuse(&rules, &self.request, Denial::held_too_long(policy, longest))
    }
}

/// A check, and the holds that it asks for.
struct Asked {
    check: DecisionFuture,
    tab: Option<Box<Tab>>,
}

impl Drop for Asked {
    /// The request goes away without a decision: nothing is given back for a check that the store has not received.
    fn drop(&mut self) {
        if self.tab.is_some() && !self.check.abandon() {
            discard(self.tab.take());
        }
    }
}

const POLLED_AGAIN: &str = "`ResponseFuture` polled after completion";

impl<S, F, K, R, ReqBody, ResBody, B> ResponseFuture<S, F, K, R, ReqBody, ResBody, B> {
    fn new(state: State<S, F, K, R, ReqBody, ResBody>) -> Self {
        Self { state, body: PhantomData }
    }

    pub(crate) fn pass(response: F) -> Self {
        Self::new(State::Calling { response, admitted: None, cut_off: None })
    }

    pub(crate) fn call(response: F, admitted: Admitted, cut_off: Option<Box<CutOff<K, R>>>) -> Self {
        Self::new(State::Calling { response, admitted: Some(admitted), cut_off })
    }

    pub(crate) fn refuse(response: Response<ResBody>) -> Self {
        Self::new(State::Refused { response: Some(response) })
    }

    pub(crate) fn check(
        check: DecisionFuture,
        service: LaterService<S>,
        request: Request<ReqBody>,
        tab: Option<Box<Tab>>,
        config: Arc<Config<K, R>>,
        rules: KeptRules,
    ) -> Self {
        let waiting = Waiting { asked: Asked { check, tab }, decision: None, service, request, config, rules };
        Self::new(State::Checking { waiting: Some(Box::new(waiting)) })
    }
}

impl<S, F, K, R, ReqBody, ResBody, B, E> Future for ResponseFuture<S, F, K, R, ReqBody, ResBody, B>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>, Error = E, Future = F>,
    F: Future<Output = Result<Response<ResBody>, E>>,
    R: Rejection<ResBody>,
    B: CarryHolds<ResBody>,
{
    type Output = Result<Response<B::Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Checking { waiting } => {
                    let Waiting { asked: Asked { check, tab }, decision, service, .. } =
                        &mut **waiting.as_mut().expect(POLLED_AGAIN);
                    let decided = match decision.take() {
                        Some(decided) => decided,
                        None => {
                            if let Some(tab) = tab {
                                tab.ask();
                            }
                            ready!(Pin::new(check).poll(cx))
                        }
                    };
                    if decided.is_allowed() && !service.is_ready {
                        match service.service.poll_ready(cx) {
                            Poll::Pending => {
                                *decision = Some(decided);
                                return Poll::Pending;
                            }
                            Poll::Ready(ready) => ready?,
                        }
                    }
                    let (decision, tab) = (decided, tab.take());
                    let Waiting { service: LaterService { mut service, .. }, mut request, config, rules, .. } =
                        *waiting.take().expect(POLLED_AGAIN);
                    if decision.is_allowed() {
                        let admitted =
                            config.admit(&rules.load(&config.rules), decision, tab, request.extensions_mut());
                        let (parts, body) = request.into_parts();
                        let cut_off = CutOff::of(&admitted, &config, || rules, || parts.clone());
                        let response = service.call(Request::from_parts(parts, body));
                        State::Calling { response, admitted: Some(admitted), cut_off }
                    } else {
                        let rules = rules.load(&config.rules);
                        discard(tab);
                        // Releases what the service reserved in `poll_ready`, before the response is built.
                        drop(service);
                        let (parts, _) = request.into_parts();
                        State::Refused { response: Some(config.refuse(&rules, &parts, Denial::of(decision))) }
                    }
                }
                StateProj::Calling { response, admitted, cut_off } => {
                    if let (Some(cut_off), Some(admitted)) = (&cut_off, &admitted)
                        && let Some(too_long) = admitted.poll_too_old(cx)
                    {
                        let response = Some(cut_off.refuse(too_long));
                        state.set(State::Refused { response });
                        continue;
                    }
                    let result = ready!(response.poll(cx));
                    // Taken before the result is read, so that the holds of a request that failed end now.
                    let admitted = admitted.take();
                    let response = result?;
                    return Poll::Ready(Ok(match admitted {
                        Some(admitted) => admitted.complete::<B, _>(response),
                        None => B::plain(response),
                    }));
                }
                StateProj::Refused { response } => {
                    return Poll::Ready(Ok(B::plain(response.take().expect(POLLED_AGAIN))));
                }
            };
            state.set(next);
        }
    }
}

impl<S, F, K, R, ReqBody, ResBody, B> fmt::Debug for ResponseFuture<S, F, K, R, ReqBody, ResBody, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}
