//! An answer that is still to come.

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
    /// What the store knows about an answer that did not come in time.
    give_up: Option<Arc<dyn GiveUp>>,
}

/// Says what became of a check at the deadline.
pub(crate) trait GiveUp: Send + Sync {
    /// The error of a check that has no answer after `deadline`.
    fn error(&self, deadline: Duration) -> Error;

    /// How much longer a check may wait that has waited for `deadline` or longer, because the time before is not the
    /// store's: the first connection is being made, or was made only just now. `None` ends the wait.
    fn more_time(&self, deadline: Duration) -> Option<Duration>;

    /// Takes over the breakers of a check that asks several parts of the store: each part has its own. Tells whether it
    /// has. Called at the first poll.
    fn takes_over(&self, breakers: &Arc<Breakers>) -> bool;
}

impl<T> Pending<T> {
    /// Wraps a future. At the deadline, the check may have been charged.
    pub(crate) fn new(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self { future: Box::pin(future), give_up: None }
    }

    /// Takes the place of an answer that is waited for elsewhere.
    pub(crate) fn never() -> Self
    where
        T: Send + 'static,
    {
        Self::new(std::future::pending())
    }

    /// Lets the store say what became of the check at the deadline.
    #[cfg(feature = "redis")]
    pub(crate) fn or(self, give_up: Arc<dyn GiveUp>) -> Self {
        Self { give_up: Some(give_up), ..self }
    }

    /// Whether the store asks the breakers itself. See [`GiveUp::takes_over`].
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

/// The store was silent.
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
