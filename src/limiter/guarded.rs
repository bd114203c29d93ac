//! A call of the store behind the breaker and the deadline: the one place where a permit is asked for, waited on and
//! settled.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;

use crate::{
    breaker::{CallOutcome, Permit},
    error::{Error, ErrorKind},
    limiter::core::Core,
    runtime::deadline::Deadline,
    store::Pending,
};

/// A pending call of the store, of a check, a debit or a reset.
///
/// A [probe](Permit::is_probe) whose caller goes away is awaited in a task of its own. Otherwise clients that reset
/// their requests would keep the breaker open, because no probe would ever end.
pub(super) struct Guarded<T: Send + 'static> {
    pending: Pending<T>,
    /// What a result says about the store.
    outcome: fn(&Result<T, Error>) -> CallOutcome,
    /// Set once the store has been asked. Boxed, so that the futures of checks that need not wait stay small.
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
            // In steps of a deadline, because the cause of the extension may end during a step.
            wait.deadline.as_mut().extend(more.min(*wait.time));
            ready!(wait.deadline.as_mut().poll(cx));
        }
        Poll::Ready(pending.deadline_error(*wait.time))
    }
}

impl<T: Send + 'static> Guarded<T> {
    pub(super) fn new(pending: Pending<T>, outcome: fn(&Result<T, Error>) -> CallOutcome) -> Self {
        Self { pending, outcome, wait: None }
    }

    /// Asks the store if `admit` permits it, and waits until the deadline.
    ///
    /// `admit` is called at the first poll: a probe that is never polled would keep other checks from being sent.
    pub(super) fn poll(
        &mut self,
        core: &Core,
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
                let time = core.store.deadline();
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
        core.settle(permit.or(waited), (self.outcome)(&result));
        Poll::Ready(result)
    }
}

impl<T: Send + 'static> Drop for Guarded<T> {
    fn drop(&mut self) {
        let Some(mut wait) = self.wait.take() else { return };
        let permit = wait.as_mut().project().permit.take();
        if let (Some(probe), Ok(runtime)) = (permit.filter(Permit::is_probe), Handle::try_current()) {
            let mut pending = mem::replace(&mut self.pending, Pending::never());
            let outcome = self.outcome;
            runtime.spawn(async move {
                let answer = poll_fn(|cx| {
                    if let Poll::Ready(result) = Pin::new(&mut pending).poll(cx) {
                        return Poll::Ready(result);
                    }
                    wait.as_mut().poll_late(&pending, cx).map(Err)
                });
                probe.settle_probe(outcome(&answer.await));
            });
        }
    }
}
