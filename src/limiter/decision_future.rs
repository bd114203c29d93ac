//! The future of a check of the middleware, which always ends in a decision: without a verdict, the failure policy
//! decides. It asks the store directly, or waits for its turn first.

use std::task::{Context, Poll, ready};
use std::{future::Future, mem, pin::Pin, sync::Arc};

use crate::limiter::{check_future::Waiting, core::Core};
use crate::{check::Check, decision::Decision, failure::FailurePolicy, observe::CheckSpan, store::Answer};

/// A check that the store has received.
pub(crate) enum Sent {
    /// The store answered without waiting.
    Decided(Decision),
    Waiting(DecisionFuture),
}

/// Asks the store, and takes the charges out of `check`. The failure policy `failure` decides if the store gives no
/// verdict.
pub(super) fn decide(
    core: &Arc<Core>,
    check: &mut Check,
    failure: FailurePolicy,
    span: Option<Box<CheckSpan>>,
) -> Sent {
    let mut route = core.route(check);
    match core.send(&mut route, check, failure.into(), true) {
        // By reference, because a verdict is large to move.
        Answer::Ready(Ok(ref verdict)) => Sent::Decided(core.on_verdict(check, verdict, failure.into(), span)),
        Answer::Ready(Err(error)) => Sent::Decided(core.apply_failure_policy(check, error, failure, span)),
        Answer::Pending(verdict) => {
            let waiting = Waiting::new(core, route, verdict, span);
            let check = mem::replace(check, Check::empty());
            let core = Arc::clone(core);
            Sent::Waiting(DecisionFuture(DecisionState::Asked { core, check, failure, waiting }))
        }
    }
}

/// The future of a [`Decision`] that does not fail: the failure policy decides if the store gives no verdict.
#[must_use = "the check is not sent before the future is polled"]
pub(crate) struct DecisionFuture(DecisionState);

enum DecisionState {
    Asked {
        core: Arc<Core>,
        check: Check,
        failure: FailurePolicy,
        waiting: Waiting,
    },
    /// The request waits for its turn, and holds nothing.
    Queued(Pin<Box<dyn Future<Output = Decision> + Send>>),
}

impl DecisionFuture {
    /// The future of a request that waits for its turn.
    pub(super) fn queued(decision: impl Future<Output = Decision> + Send + 'static) -> Self {
        Self(DecisionState::Queued(Box::pin(decision)))
    }

    /// Whether the request waits for its turn, perhaps for long.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.0, DecisionState::Queued(_))
    }

    /// Gives the check up. Returns whether the store may have received it, or may still receive it.
    pub(crate) fn abandon(&mut self) -> bool {
        match &mut self.0 {
            DecisionState::Asked { waiting, .. } => waiting.abandon(),
            DecisionState::Queued(_) => true,
        }
    }
}

impl Future for DecisionFuture {
    type Output = Decision;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let (core, check, failure, waiting) = match &mut self.get_mut().0 {
            DecisionState::Asked { core, check, failure, waiting } => (core, check, failure, waiting),
            DecisionState::Queued(decision) => return decision.as_mut().poll(cx),
        };
        Poll::Ready(match ready!(waiting.poll(core, check, (*failure).into(), cx)) {
            Ok(verdict) => core.on_verdict(check, &verdict, (*failure).into(), waiting.take_span()),
            Err(error) => core.apply_failure_policy(check, error, *failure, waiting.take_span()),
        })
    }
}
