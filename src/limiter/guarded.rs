//! An answer of the store, asked for with the breaker's leave and waited for until the deadline.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;

use super::Limiter;
use crate::{
    breaker::{CallOutcome, Permit},
    error::{Error, ErrorKind},
    runtime::deadline::Deadline,
    store::Pending,
};

/// What checks and resets have in common.
///
/// A [probe](Permit::is_probe) whose caller goes away is waited for all the same, in a task of its own. Otherwise clients
/// that reset their requests would keep the breaker open: no probe would ever end.
pub(super) struct Guarded<T: Send + 'static> {
    pending: Pending<T>,
    /// What a result tells the breaker.
    signal: fn(&Result<T, Error>) -> CallOutcome,
    /// Set once the store has been asked. In a box, so that the futures of checks that need not wait stay small.
    wait: Option<Pin<Box<Wait>>>,
}

const NO_TIMERS: &str = "a store that is waited for needs a tokio runtime with timers; build it with `enable_all()`";

pin_project! {
    struct Wait {
        permit: Option<Permit>,
        time: Duration,
        #[pin]
        deadline: Deadline,
    }
}

impl Wait {
    /// The error of an answer that has not come by the deadline.
    fn poll_late<T>(self: Pin<&mut Self>, pending: &Pending<T>, cx: &mut Context<'_>) -> Poll<Error> {
        let mut wait = self.project();
        ready!(wait.deadline.as_mut().poll(cx));
        while let Some(more) = pending.more_time(*wait.time) {
            // In steps of a deadline: what is awaited may end during a step, and the rest is counted from that end.
            wait.deadline.as_mut().extend(more.min(*wait.time));
            ready!(wait.deadline.as_mut().poll(cx));
        }
        Poll::Ready(pending.late(*wait.time))
    }
}

impl<T: Send + 'static> Guarded<T> {
    pub(super) fn new(pending: Pending<T>, signal: fn(&Result<T, Error>) -> CallOutcome) -> Self {
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
                let time = limiter.parts.store.deadline();
                if self.wait.is_none() {
                    // Counts from the first poll, because nothing is sent before it.
                    let wait = |deadline| Box::pin(Wait { permit: permit.take(), time, deadline });
                    self.wait = Deadline::after(time).map(wait);
                }
                match &mut self.wait {
                    Some(wait) => Err(ready!(wait.as_mut().poll_late(&self.pending, cx))),
                    None => Err(Error::new(ErrorKind::Misconfigured, NO_TIMERS)),
                }
            }
        };
        let waited = self.wait.as_mut().and_then(|wait| wait.as_mut().project().permit.take());
        limiter.settle(permit.or(waited), (self.signal)(&result));
        Poll::Ready(result)
    }
}

impl<T: Send + 'static> Drop for Guarded<T> {
    fn drop(&mut self) {
        let Some(mut wait) = self.wait.take() else { return };
        let permit = wait.as_mut().project().permit.take();
        if let (Some(probe), Ok(runtime)) = (permit.filter(Permit::is_probe), Handle::try_current()) {
            let mut pending = mem::replace(&mut self.pending, Pending::never());
            let signal = self.signal;
            runtime.spawn(async move {
                let answer = poll_fn(|cx| {
                    if let Poll::Ready(result) = Pin::new(&mut pending).poll(cx) {
                        return Poll::Ready(result);
                    }
                    wait.as_mut().poll_late(&pending, cx).map(Err)
                });
                probe.settle_probe(signal(&answer.await));
            });
        }
    }
}
