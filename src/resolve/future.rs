//! The future of a resolved request.

use std::{
    any, fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Request;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::value::IntoResolved;
use crate::{
    observe::{Reporter, ResolveFailure},
    runtime::deadline::{Within, within},
};

pin_project! {
    /// The response future of [`Resolve`](super::Resolve).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the future of the closure or the call of the inner service.
    ///
    /// # Panics
    ///
    /// If it is polled after it has returned the response and the future of the inner service panics then.
    pub struct ResolveFuture<S, F, L, B> {
        #[pin]
        state: State<S, F, L, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, L, B> {
        Resolving {
            #[pin]
            answer: Within<L>,
            start: Instant,
            reporter: Reporter,
            // Taken when the answer is there.
            next: Option<(S, Request<B>)>,
        },
        Calling {
            #[pin]
            response: F,
        },
    }
}

impl<S, F, L: Future, B> ResolveFuture<S, F, L, B> {
    pub(super) fn new(find: L, timeout: Duration, reporter: Reporter, ready: S, request: Request<B>) -> Self {
        let next = Some((ready, request));
        Self { state: State::Resolving { answer: within(timeout, find), start: Instant::now(), reporter, next } }
    }
}

impl<S, L, B> Future for ResolveFuture<S, S::Future, L, B>
where
    S: Service<Request<B>>,
    L: Future<Output: IntoResolved>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let response = match state.as_mut().project() {
                StateProjection::Calling { response } => return response.poll(cx),
                StateProjection::Resolving { answer, start, reporter, next } => {
                    let answer = ready!(answer.poll(cx)).map(IntoResolved::into_resolved);
                    let (mut ready, mut request) = next.take().expect("the state changes with the answer");
                    insert(answer, request.extensions_mut(), reporter, start.elapsed());
                    ready.call(request)
                }
            };
            state.set(State::Calling { response });
        }
    }
}

/// Inserts what was found, and reports a failure. `answer` is `None` if there was none in time.
fn insert<T: Clone + Send + Sync + 'static>(
    answer: Option<Result<Option<T>, String>>,
    extensions: &mut http::Extensions,
    reporter: &Reporter,
    elapsed: Duration,
) {
    let error = match answer {
        Some(Ok(found)) => {
            found.map(|found| extensions.insert(found));
            return;
        }
        Some(Err(error)) => Some(error),
        None => None,
    };
    if let Some(observer) = reporter.listener() {
        observer.on_resolve_failure(&ResolveFailure::new(error.as_deref(), elapsed, any::type_name::<T>()));
    }
}

impl<S, F, L, B> fmt::Debug for ResolveFuture<S, F, L, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Resolving { .. } => "resolving",
            State::Calling { .. } => "calling",
        };
        f.debug_struct("ResolveFuture").field("state", &state).finish_non_exhaustive()
    }
}
