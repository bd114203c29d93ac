//! A check that waits for the store's verdict.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    breaker::CallOutcome,
    check::Check,
    error::Error,
    fallback::Reservation,
    limiter::{core::Core, guarded::Guarded, purpose::Purpose, sharded::Judgement},
    observe::CheckSpan,
    store::Pending,
    verdict::Verdict,
};

/// The wait of a check. Its owner has the check itself.
pub(super) struct Waiting {
    verdict: Awaited,
    span: Option<Box<CheckSpan>>,
    /// Room of the share that is taken until the verdict.
    reserved: Option<Box<Reservation>>,
}

enum Awaited {
    Store(Guarded<Verdict>),
    /// One or two calls of the store, each with its own permit, or a block of units.
    Detour(Judgement),
}

impl Waiting {
    /// Also sends the ends of holds that an ended runtime has left, so that they reach the store with this check.
    pub(super) fn new(core: &Arc<Core>, verdict: Pending<Verdict>, span: Option<Box<CheckSpan>>) -> Self {
        core.look_after_holds();
        Self { verdict: Awaited::Store(Guarded::new(verdict, CallOutcome::of_verdict)), span, reserved: None }
    }

    pub(super) fn for_detour(verdict: Judgement, span: Option<Box<CheckSpan>>) -> Self {
        Self { verdict: Awaited::Detour(verdict), span, reserved: None }
    }

    /// Polls for the verdict on `check`, behind the breaker and the deadline.
    pub(super) fn poll(
        &mut self,
        core: &Arc<Core>,
        check: &Check,
        purpose: Purpose,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Verdict, Error>> {
        if let Some(span) = &mut self.span {
            span.waits();
        }
        let Self { verdict, reserved, .. } = self;
        let result = match verdict {
            Awaited::Store(verdict) => {
                let admit =
                    |pending: &Pending<Verdict>| core.admit_within_share(check, check, purpose, pending, reserved);
                ready!(verdict.poll(core, admit, cx))
            }
            Awaited::Detour(verdict) => ready!(verdict.as_mut().poll(cx)),
        };
        self.reserved = None;
        Poll::Ready(result)
    }

    /// Gives the check up. Returns whether the store may have received it, or may still receive it.
    pub(super) fn abandon(&mut self) -> bool {
        match &mut self.verdict {
            Awaited::Store(verdict) => verdict.abandon(),
            Awaited::Detour(_) => true,
        }
    }

    pub(super) fn take_span(&mut self) -> Option<Box<CheckSpan>> {
        self.span.take()
    }
}
