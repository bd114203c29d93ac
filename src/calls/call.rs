//! A call of the store behind the breaker and the deadline: requests a permit, holds it during the call and settles it.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll, ready};
use std::{mem, pin::Pin, sync::Arc, time::Duration};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;

use super::{Calls, Purpose};
use crate::breaker::{CallOutcome, Permit};
use crate::error::{Error, ErrorKind};
use crate::runtime::{deadline::Deadline, real_time::is_paused};
use crate::{check::Check, fallback::Reservation, key::Key, store::Pending, verdict::Verdict};

/// A pending call of the store: a check, a debit or a reset.
///
/// A [probe](Permit::is_probe) whose caller goes away is awaited in a separate task. Otherwise clients that reset their
/// requests would keep the breaker open, because no probe would end.
pub(crate) struct Call<T: Send + 'static> {
    pending: Pending<T>,
    /// Maps a result to the outcome that the breaker counts.
    outcome: fn(&Result<T, Error>) -> CallOutcome,
    /// The time until the deadline if it is not the store's whole deadline.
    time: Option<Duration>,
    /// `None` until the store has been asked. Boxed, so that the futures of checks that need not wait stay small.
    wait: Option<Pin<Box<Wait>>>,
}

pub(crate) const NO_TIMERS: &str =
    "waiting for the store needs a tokio runtime with timers; build it with `enable_all()`";

/// What a test that pauses tokio's time has to know.
const PAUSED_TIME: &str = "tokio's time is paused, which no server follows: test with a `MemoryStore` on \
                           a `TokioClock`, or in real time";

pin_project! {
    struct Wait {
        permit: Option<Permit>,
        time: Duration,
        #[pin]
        deadline: Deadline,
    }
}

impl Wait {
    /// Resolves to the error of a call that got no answer within the deadline.
    fn poll_late<T>(self: Pin<&mut Self>, pending: &Pending<T>, cx: &mut Context<'_>) -> Poll<Error> {
        let mut wait = self.project();
        ready!(wait.deadline.as_mut().poll(cx));
        while let Some(more) = pending.more_time(*wait.time) {
            // Extends by one deadline at most, because the cause of the extension may end meanwhile.
            wait.deadline.as_mut().extend(more.min(*wait.time));
            ready!(wait.deadline.as_mut().poll(cx));
        }
        let error = pending.deadline_error(*wait.time);
        Poll::Ready(if is_paused() { error.about(PAUSED_TIME) } else { error })
    }
}

impl<T: Send + 'static> Call<T> {
    pub(crate) fn new(pending: Pending<T>) -> Self {
        Self { pending, outcome: CallOutcome::of, time: None, wait: None }
    }

    /// Waits for the answer to a call for `key`.
    pub(crate) async fn answer(mut self, calls: &Calls, key: &Key) -> Result<T, Error> {
        poll_fn(|cx| self.poll(calls, key, cx)).await
    }

    /// Asks the store if the breaker permits a call for `key`, and waits until the deadline.
    pub(crate) fn poll(&mut self, calls: &Calls, key: &Key, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        self.poll_if(calls, |pending| calls.admit(Some(key), pending), cx)
    }

    /// Asks the store if `admit` permits the call, and waits until the deadline.
    ///
    /// `admit` is called at the first poll and not earlier, because a probe that is never polled would block all other
    /// checks.
    fn poll_if(
        &mut self,
        calls: &Calls,
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
                let time = self.time.unwrap_or_else(|| calls.store.deadline());
                if self.wait.is_none() {
                    // The deadline counts from the first poll, because nothing is sent earlier.
                    let wait = |deadline| Box::pin(Wait { permit: permit.take(), time, deadline });
                    self.wait = Deadline::after(time).map(wait);
                }
                match &mut self.wait {
                    Some(wait) => Err(ready!(wait.as_mut().poll_late(&self.pending, cx))),
                    None => Err(Error::new(ErrorKind::StoreMisconfigured, NO_TIMERS)),
                }
            }
        };
        let waited = self.wait.as_mut().and_then(|wait| wait.as_mut().project().permit.take());
        calls.settle(permit.or(waited), (self.outcome)(&result));
        Poll::Ready(result)
    }

    /// Gives the call up. Returns whether the store may have received it, or may still receive it. A probe goes on.
    pub(crate) fn abandon(&mut self) -> bool {
        let Some(wait) = &mut self.wait else { return false };
        let is_probe = wait.as_mut().project().permit.as_ref().is_some_and(Permit::is_probe);
        is_probe || mem::replace(&mut self.pending, Pending::never()).abandon()
    }
}

impl<T: Send + 'static> Drop for Call<T> {
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

/// A check that the store has not answered yet. Its owner has the check itself.
pub(crate) struct CheckCall {
    call: Call<Verdict>,
    /// Room of the share that is taken until the call is dropped, which is when its verdict was counted, or until its
    /// error.
    reserved: Option<Box<Reservation>>,
}

impl CheckCall {
    pub(crate) fn new(pending: Pending<Verdict>) -> Self {
        let call = Call { pending, outcome: CallOutcome::of_verdict, time: None, wait: None };
        Self { call, reserved: None }
    }

    /// Sets the deadline to what a first call of the same check has left of the store's deadline.
    pub(crate) fn within(mut self, time: Duration) -> Self {
        self.call.time = Some(time);
        self
    }

    /// Waits for the verdict. The store has got `sent` in the place of `check`, which is judged by the share.
    pub(crate) fn poll(
        &mut self,
        calls: &Arc<Calls>,
        sent: &Check,
        check: &Check,
        purpose: Purpose,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Verdict, Error>> {
        let Self { call, reserved } = self;
        let admit = |pending: &Pending<Verdict>| {
            let permit = calls.admit(sent.first_key(), pending)?;
            calls.keep_to_share_or_probe(sent, check, purpose, permit, reserved)
        };
        let result = ready!(call.poll_if(calls, admit, cx));
        // What was admitted keeps its room until it is counted.
        if result.is_err() {
            self.reserved = None;
        }
        Poll::Ready(result)
    }

    pub(crate) async fn answer(
        mut self,
        calls: &Arc<Calls>,
        sent: &Check,
        check: &Check,
        purpose: Purpose,
    ) -> Result<Verdict, Error> {
        poll_fn(|cx| self.poll(calls, sent, check, purpose, cx)).await
    }

    /// Waits for the verdict on a probe of the breaker, which may have its permit already.
    pub(super) async fn answer_probe(
        mut self,
        calls: &Calls,
        probe: &Check,
        mut permit: Option<Permit>,
    ) -> Result<Verdict, Error> {
        let call = &mut self.call;
        poll_fn(|cx| {
            let admit = |pending: &Pending<Verdict>| match permit.take() {
                Some(permit) => Ok(Some(permit)),
                None => calls.admit(probe.first_key(), pending),
            };
            call.poll_if(calls, admit, cx)
        })
        .await
    }

    /// Gives the check up. Returns whether the store may have received it, or may still receive it.
    pub(crate) fn abandon(&mut self) -> bool {
        self.call.abandon()
    }
}
