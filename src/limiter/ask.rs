//! Asking the store for a verdict on a check, and waiting for the verdict.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    breaker::CallOutcome,
    check::Check,
    decision::Decision,
    error::{ConfigError, Error},
    failure::FailurePolicy,
    limiter::{core::Core, guarded::Guarded, purpose::Purpose},
    observe::CheckSpan,
    store::{Answer, Pending},
    verdict::Verdict,
};

/// A check that the store has received.
pub(super) enum Asked {
    /// The store answered without waiting.
    Answered(Result<Decision, Error>, Option<Box<CheckSpan>>),
    Waiting(WaitingCheck),
}

/// Asks the store, and takes the charges out of `check`. `failure` is the caller's failure policy, if the caller has
/// set one; the policy is only reported here, not applied.
#[inline]
pub(super) fn ask(core: &Arc<Core>, check: &mut Check, purpose: Purpose, failure: Option<FailurePolicy>) -> Asked {
    let span = core.observer.as_ref().map(|observer| CheckSpan::start(observer, check, failure));
    match core.store.check(check) {
        Answer::Ready(result) => {
            Asked::Answered(core.into_decision(check, result, purpose, failure, span.as_deref()), span)
        }
        Answer::Pending(verdict) => {
            let check = mem::replace(check, Check::empty());
            let verdict = Guarded::new(verdict, CallOutcome::of_verdict);
            Asked::Waiting(WaitingCheck { core: Arc::clone(core), check, failure, verdict, span })
        }
    }
}

/// Ends a check whose caller handles errors: turns the decision into the answer to a peek, and reports it. By reference,
/// because a decision is large to move.
#[inline]
pub(super) fn conclude(purpose: Purpose, result: &mut Result<Decision, Error>, span: Option<Box<CheckSpan>>) {
    if purpose.is_peek()
        && let Ok(decision) = result
    {
        decision.answer_peek();
    }
    if let Some(span) = span {
        span.end(result.as_ref().ok());
    }
}

/// A check that waits for its verdict.
pub(super) struct WaitingCheck {
    core: Arc<Core>,
    check: Check,
    failure: Option<FailurePolicy>,
    verdict: Guarded<Verdict>,
    span: Option<Box<CheckSpan>>,
}

impl WaitingCheck {
    pub(super) fn poll(&mut self, purpose: Purpose, cx: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let Self { core, check, failure, verdict, span } = self;
        if let Some(span) = span {
            span.waits();
        }
        let admit = |pending: &Pending<Verdict>| {
            core.hold_back_while_recovering(check, purpose)?;
            core.admit_check(check, pending)
        };
        let result = ready!(verdict.poll(core, admit, cx));
        Poll::Ready(core.into_decision(check, result, purpose, *failure, span.as_deref()))
    }

    /// Ends the check of a caller that cannot wait. Nothing has been sent, because the store's answer was not polled.
    #[cold]
    pub(super) fn refuse_to_wait(mut self, purpose: Purpose) -> Result<Decision, Error> {
        let error = Err(ConfigError::StoreMustBeAwaited.into());
        self.core.into_decision(&mut self.check, error, purpose, self.failure, self.span.as_deref())
    }

    pub(super) fn take_span(&mut self) -> Option<Box<CheckSpan>> {
        self.span.take()
    }
}
