//! The future that ends a handle.

use std::task::{Context, Poll};
use std::{fmt, future::Future, iter, mem, pin::Pin, sync::Arc};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::limiter::hold::{age::Ending, change::Change, ends::SharedHolds};
use crate::{check::open_hold::OpenHold, error::Error, hold::SettleAnswer};

/// The future of a [`SettleAnswer`], returned by [`Hold::settle`](crate::limiter::Hold::settle).
///
/// # Cancel safety
///
/// The hold ends in any case. If the future is dropped before its result, also before its first poll, the settlement is
/// sent in the background, and again until the store answers, for one time-to-live of the hold.
///
/// # Panics
///
/// Panics if the future is polled again after it has returned its result.
#[must_use = "the answer is known when the future is polled"]
pub struct SettleFuture {
    /// The ends that have no answer yet.
    unanswered: SmallVec<[(Ending, Change); 1]>,
    shared: Option<Arc<SharedHolds>>,
    /// The runtime of the hold. Used if the future is dropped outside of a runtime.
    runtime: Option<Handle>,
    result: Result<SettleAnswer, Error>,
    is_done: bool,
}

impl SettleFuture {
    /// The settlement of holds in the store.
    pub(super) fn new(
        shared: Arc<SharedHolds>,
        runtime: Option<Handle>,
        endings: impl Iterator<Item = Ending>,
    ) -> Self {
        let unanswered = endings.map(|ending| (ending, Change::UNSENT)).collect();
        Self { unanswered, shared: Some(shared), runtime, result: Ok(SettleAnswer::NotHeld), is_done: false }
    }

    /// The settlement of a block of a lease. `is_uncertain`: the process does not know if the store holds it.
    pub(in crate::limiter) fn of_block(
        shared: Arc<SharedHolds>,
        runtime: Option<Handle>,
        hold: OpenHold,
        held: u64,
        actual: u64,
        is_uncertain: bool,
    ) -> Self {
        let ending = Ending { hold, held, actual, cause: None, is_uncertain };
        Self::new(shared, runtime, iter::once(ending))
    }

    /// A settlement that needs no store.
    pub(super) fn answered(settlement: SettleAnswer) -> Self {
        let unanswered = SmallVec::new();
        Self { unanswered, shared: None, runtime: None, result: Ok(settlement), is_done: false }
    }

    /// Merges the answer to one end into the result: an error, before a hold that had ended, before a settlement.
    fn merge(&mut self, answer: Result<SettleAnswer, Error>) {
        let result = mem::replace(&mut self.result, Ok(SettleAnswer::NotHeld));
        self.result = match (result, answer) {
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(one), Ok(other)) => Ok(merged(one, other)),
        };
    }
}

/// One answer for two holds of a handle: that one had ended, before that one was settled.
pub(super) fn merged(one: SettleAnswer, other: SettleAnswer) -> SettleAnswer {
    match (one, other) {
        (SettleAnswer::Expired, _) | (_, SettleAnswer::Expired) => SettleAnswer::Expired,
        (SettleAnswer::NotHeld, settlement) | (settlement, SettleAnswer::NotHeld) => settlement,
        (SettleAnswer::Settled, SettleAnswer::Settled) => SettleAnswer::Settled,
    }
}

impl Future for SettleFuture {
    type Output = Result<SettleAnswer, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!this.is_done, "a SettleFuture was polled after it had returned its result");
        if let Some(shared) = this.shared.clone() {
            let mut number = 0;
            while let Some((ending, call)) = this.unanswered.get_mut(number) {
                let Poll::Ready(answer) = call.poll(&shared.calls, &ending.hold, ending.change(), cx) else {
                    number += 1;
                    continue;
                };
                let (ending, _) = this.unanswered.remove(number);
                shared.on_end_answer(ending, &answer);
                this.merge(answer);
            }
            if !this.unanswered.is_empty() {
                return Poll::Pending;
            }
            shared.look_after();
        }
        this.is_done = true;
        Poll::Ready(mem::replace(&mut this.result, Ok(SettleAnswer::NotHeld)))
    }
}

impl Drop for SettleFuture {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            for (ending, call) in self.unanswered.drain(..) {
                match call.is_unsent() {
                    true => shared.end_hold_in_background(ending, self.runtime.as_ref()),
                    false => shared.send_in_background(ending, call, false, self.runtime.as_ref()),
                }
            }
        }
    }
}

impl fmt::Debug for SettleFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SettleFuture")
    }
}
