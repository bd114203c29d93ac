//! A check that waits for the store's verdict.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    calls::{CheckCall, Purpose},
    check::Check,
    error::Error,
    limiter::{core::Core, route::Route},
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
    Store(CheckCall),
    /// One or two calls of the store, each with its own permit, or a block of units.
    Detour(Pending<Verdict>),
}

impl Waiting {
    /// Also sends the ends of holds that an ended runtime has left, so that they reach the store with this check.
    pub(super) fn new(core: &Arc<Core>, route: Route, verdict: Pending<Verdict>, span: Option<Box<CheckSpan>>) -> Self {
        let verdict = match route {
            Route::Direct => {
                core.holds.look_after();
                Awaited::Store(CheckCall::new(verdict))
            }
            Route::Shards | Route::Lease => Awaited::Detour(verdict),
        };
        Self { verdict, span }
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
        Poll::Ready(match &mut self.verdict {
            Awaited::Store(call) => ready!(call.poll(&core.calls, check, check, purpose, cx)),
            Awaited::Detour(verdict) => ready!(Pin::new(verdict).poll(cx)),
        })
    }

    /// Gives the check up. Returns whether the store may have received it, or may still receive it.
    pub(super) fn abandon(&mut self) -> bool {
        match &mut self.verdict {
            Awaited::Store(call) => call.abandon(),
            Awaited::Detour(_) => true,
        }
    }

    pub(super) fn take_span(&mut self) -> Option<Box<CheckSpan>> {
        self.span.take()
    }
}
