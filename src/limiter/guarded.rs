//! An answer of the store, asked for with the breaker's leave and waited for until the deadline.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::Limiter;
use crate::{
    deadline::Deadline,
    error::{Error, ErrorKind},
    failure::{Permit, Signal},
    store::Pending,
};

/// What checks and resets have in common.
pub(super) struct Guarded<T> {
    pending: Pending<T>,
    /// What a result tells the breaker.
    signal: fn(&Result<T, Error>) -> Signal,
    /// Set once the store has been asked. In a box, so that the futures of checks that need not wait stay small.
    wait: Option<Pin<Box<Wait>>>,
}

const NO_TIMERS: &str = "a store that is waited for needs a tokio runtime with timers; build it with `enable_all()`";

pin_project! {
    struct Wait {
        permit: Option<Permit>,
        #[pin]
        deadline: Deadline,
    }
}

impl<T> Guarded<T> {
    pub(super) fn new(pending: Pending<T>, signal: fn(&Result<T, Error>) -> Signal) -> Self {
        Self { pending, signal, wait: None }
    }

    /// Asks the store if `admit` lets it, and waits until the deadline.
    ///
    /// `admit` is called at the first poll and not before: a probe that is never polled would keep others from asking.
    pub(super) fn poll(
        &mut self,
        limiter: &Limiter,
        admit: impl FnOnce(&Pending<T>) -> Result<Option<Permit>, Error>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, Error>> {
        let mut permit = match &self.wait {
            None => admit(&self.pending)?,
            Some(_) => None,
        };
        let result = match Pin::new(&mut self.pending).poll(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => {
                let time = limiter.store.deadline();
                if self.wait.is_none() {
                    // Counts from the first poll, because nothing is sent before it.
                    let wait = |deadline| Box::pin(Wait { permit: permit.take(), deadline });
                    self.wait = Deadline::after(time).map(wait);
                }
                match &mut self.wait {
                    Some(wait) => {
                        let mut deadline = wait.as_mut().project().deadline;
                        ready!(deadline.as_mut().poll(cx));
                        while let Some(more) = self.pending.more_time(time) {
                            deadline.as_mut().extend(more);
                            ready!(deadline.as_mut().poll(cx));
                        }
                        Err(self.pending.late(time))
                    }
                    None => Err(Error::new(ErrorKind::Misconfigured, NO_TIMERS)),
                }
            }
        };
        let waited = self.wait.as_mut().and_then(|wait| wait.as_mut().project().permit.take());
        limiter.settle(permit.or(waited), (self.signal)(&result));
        Poll::Ready(result)
    }
}
