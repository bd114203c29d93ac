//! Checks of the middleware, which always end in a decision: the one place that applies a failure policy.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    check::Check,
    decision::Decision,
    error::Error,
    failure::FailurePolicy,
    limiter::{
        ask::{Asked, WaitingCheck, ask},
        core::Core,
    },
    observe::CheckSpan,
};

/// A check that the store has received.
pub(crate) enum Sent {
    /// The store answered without waiting.
    Decided(Decision),
    Waiting(DecisionFuture),
}

/// Asks the store, and takes the charges out of `check`. The failure policy `failure` decides if the store gives no
/// verdict.
#[inline]
pub(super) fn decide(core: &Arc<Core>, check: &mut Check, failure: FailurePolicy) -> Sent {
    match ask(core, check, failure.into(), Some(failure)) {
        Asked::Answered(result, span) => Sent::Decided(resolve(failure, result, span)),
        Asked::Waiting(check) => Sent::Waiting(DecisionFuture { check, failure }),
    }
}

/// The future of a [`Decision`] that does not fail: the failure policy decides if the store gives no verdict.
#[must_use = "the check is not sent before the future is polled"]
pub(crate) struct DecisionFuture {
    check: WaitingCheck,
    failure: FailurePolicy,
}

impl Future for DecisionFuture {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let failure = self.failure;
        let result = ready!(self.check.poll(failure.into(), cx));
        Poll::Ready(resolve(failure, result, self.check.take_span()))
    }
}

/// Applies the failure policy and reports the decision.
#[inline]
fn resolve(failure: FailurePolicy, result: Result<Decision, Error>, span: Option<Box<CheckSpan>>) -> Decision {
    let decision = failure.resolve(result);
    if let Some(span) = span {
        span.end(Some(&decision));
    }
    decision
}
