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

/// The future of a store's answer. See [`Answer::pending`](super::Answer::pending).
#[must_use = "nothing is sent before it is polled"]
pub struct Pending<T> {
    future: Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>,
    /// The store's knowledge about a check without an answer in time.
    give_up: Option<Arc<dyn GiveUp>>,
}

/// A store's knowledge about a check in flight, for the deadline.
pub(crate) trait GiveUp: Send + Sync {
    /// The error of a check that has no answer after `deadline`.
    fn error(&self, deadline: Duration) -> Error;

    /// How much longer a check may wait that has waited for `deadline`, because the first connection is being made or
    /// has just been made. `None` ends the wait.
    fn more_time(&self, deadline: Duration) -> Option<Duration>;

    /// Takes over the breakers of a check that may span several failure domains, each of which has its own breaker.
    /// Returns whether the store does so. Called at the first poll.
    fn takes_over(&self, breakers: &Arc<Breakers>) -> bool;
}

impl<T> Pending<T> {
    /// Wraps a future. A check that is dropped at the deadline counts as possibly charged.
    pub(crate) fn new(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self { future: Box::pin(future), give_up: None }
    }

    /// A future that never resolves, in place of an answer that another future waits for.
    pub(crate) fn never() -> Self
    where
        T: Send + 'static,
    {
        Self::new(std::future::pending())
    }

    /// Adds the store's knowledge about the check.
    #[cfg(feature = "redis")]
    pub(crate) fn or(self, give_up: Arc<dyn GiveUp>) -> Self {
        Self { give_up: Some(give_up), ..self }
    }

    /// Whether the store asks the breakers by itself. See [`GiveUp::takes_over`].
    pub(crate) fn takes_over(&self, breakers: Option<&Arc<Breakers>>) -> bool {
        let both = self.give_up.as_ref().zip(breakers);
        both.is_some_and(|(give_up, breakers)| give_up.takes_over(breakers))
    }

    /// See [`GiveUp::more_time`].
    pub(crate) fn more_time(&self, deadline: Duration) -> Option<Duration> {
        self.give_up.as_ref()?.more_time(deadline)
    }

    /// The error of a check that has no answer after `deadline`.
    pub(crate) fn late(&self, deadline: Duration) -> Error {
        match &self.give_up {
            Some(give_up) => give_up.error(deadline),
            None => no_answer(deadline).charge_unknown(),
        }
    }
}

/// The error of a check without an answer.
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
