//! The future of a store's answer.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    breaker::Breakers,
    error::{Error, ErrorKind},
};

/// The future of a store's answer. See [`Answer::pending`](super::Answer::pending). Not exported: a caller awaits it.
#[must_use = "a pending answer does nothing before it is polled"]
pub struct Pending<T> {
    future: Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>,
    /// Decides what happens at the deadline. With `None` the check gets an error and may have been charged.
    handler: Option<Arc<dyn DeadlineHandler>>,
}

/// What a store decides about a check in flight: its error at the deadline, extra time, and who asks the breakers.
pub(crate) trait DeadlineHandler: Send + Sync {
    /// The error of a check that has no answer after `deadline`.
    fn error(&self, deadline: Duration) -> Error;

    /// The extra time of a check that has waited for `deadline`, while the first connection is made or right after it
    /// was made. `None` ends the wait.
    fn more_time(&self, deadline: Duration) -> Option<Duration>;

    /// Whether the store may have received the check, or may still receive it, now that its caller has gone.
    fn may_reach_store(&self) -> bool;

    /// Notes that the check will not be sent: its caller asks in another way.
    fn put_back(&self);

    /// Hands over the breakers of the failure domains. Returns whether the store itself asks them for this check,
    /// because the check may span several domains; otherwise the limiter asks. Called at the first poll.
    fn takes_over(&self, breakers: &Arc<Breakers>) -> bool;
}

impl<T> Pending<T> {
    /// Wraps a future. A check that is dropped at the deadline counts as possibly charged.
    pub(crate) fn new(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self { future: Box::pin(future), handler: None }
    }

    /// Creates a future that never resolves, in place of an answer that another future waits for.
    pub(crate) fn never() -> Self
    where
        T: Send + 'static,
    {
        Self::new(std::future::pending())
    }

    /// Changes the result of the answer.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> Pending<U>
    where
        T: 'static,
    {
        let Self { future, handler } = self;
        Pending { future: Box::pin(async move { future.await.map(change) }), handler }
    }

    /// Sets what decides about the check at the deadline.
    #[cfg(feature = "redis")]
    pub(crate) fn with_deadline_handler(self, handler: Arc<dyn DeadlineHandler>) -> Self {
        Self { handler: Some(handler), ..self }
    }

    /// Whether the store itself asks the breakers for this check. See [`DeadlineHandler::takes_over`].
    pub(crate) fn takes_over(&self, breakers: Option<&Arc<Breakers>>) -> bool {
        let both = self.handler.as_ref().zip(breakers);
        both.is_some_and(|(handler, breakers)| handler.takes_over(breakers))
    }

    /// Gives up a check that was never polled, because its caller asks in another way.
    pub(crate) fn put_back(self) {
        if let Some(handler) = &self.handler {
            handler.put_back();
        }
    }

    /// Gives the check up. Returns whether the store may have received it, or may still receive it.
    pub(crate) fn abandon(self) -> bool {
        let Self { future, handler } = self;
        drop(future);
        handler.is_none_or(|handler| handler.may_reach_store())
    }

    /// The extra time of the check. See [`DeadlineHandler::more_time`].
    pub(crate) fn more_time(&self, deadline: Duration) -> Option<Duration> {
        self.handler.as_ref()?.more_time(deadline)
    }

    /// The error of a check that has no answer after `deadline`.
    pub(crate) fn deadline_error(&self, deadline: Duration) -> Error {
        match &self.handler {
            Some(handler) => handler.error(deadline),
            None => no_answer(deadline).charge_unknown(),
        }
    }
}

/// The error [`Deadline`](ErrorKind::Deadline). It does not say whether the check may have been charged.
pub(crate) fn no_answer(deadline: Duration) -> Error {
    Error::new(ErrorKind::Deadline, format!("no answer within {deadline:?}"))
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
