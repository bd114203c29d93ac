//! A check that waits for the store's verdict.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    breaker::CallOutcome,
    check::Check,
    error::Error,
    limiter::{core::Core, guarded::Guarded, purpose::Purpose, sharded::Judgement},
    observe::CheckSpan,
    store::Pending,
    verdict::Verdict,
};

/// The wait of a check. Its owner has the check itself.
pub(super) struct Waiting {
    verdict: Awaited,
    span: Option<Box<CheckSpan>>,
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
        Self { verdict: Awaited::Store(Guarded::new(verdict, CallOutcome::of_verdict)), span }
    }

    pub(super) fn for_detour(verdict: Judgement, span: Option<Box<CheckSpan>>) -> Self {
        Self { verdict: Awaited::Detour(verdict), span }
    }

    /// Polls for the verdict on `check`, behind the breaker and the deadline.
    pub(super) fn poll(
        &mut self,
        core: &Core,
        check: &Check,
        purpose: Purpose,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Verdict, Error>> {
        if let Some(span) = &mut self.span {
            span.waits();
        }
        let admit = |pending: &Pending<Verdict>| {
            core.hold_back_while_recovering(check, check, purpose)?;
            core.admit_check(check, pending)
        };
        match &mut self.verdict {
            Awaited::Store(verdict) => verdict.poll(core, admit, cx),
            Awaited::Detour(verdict) => verdict.as_mut().poll(cx),
        }
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
