//! Changes of holds: what is sent to the store, and what becomes of the answer.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use crate::calls::{Call, Calls};
use crate::hold::{HoldChange, SettleAnswer};
use crate::limiter::hold::{age::Ending, ends::SharedHolds};
use crate::observe::{EndedHold, Event, HoldEnd, ObservedKey};
use crate::store::{Answer, Pending};
use crate::{check::open_hold::OpenHold, error::Error};

/// A change that is sent to the store, or not yet.
pub(super) struct Change(Option<Call<SettleAnswer>>);

impl Change {
    pub(super) const UNSENT: Self = Self(None);

    /// The change that this answer of the store is for.
    pub(super) fn of(pending: Pending<SettleAnswer>) -> Self {
        Self(Some(Call::new(pending)))
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.0.is_none()
    }

    /// Sends the change at the first poll, behind the breaker and within the deadline.
    pub(super) fn poll(
        &mut self,
        calls: &Calls,
        hold: &OpenHold,
        change: HoldChange,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SettleAnswer, Error>> {
        if self.0.is_none() {
            match calls.store.change_hold(hold, change) {
                Answer::Ready(result) => return Poll::Ready(result),
                Answer::Pending(pending) => *self = Self::of(pending),
            }
        }
        match &mut self.0 {
            Some(call) => call.poll(calls, &hold.key, cx),
            None => Poll::Pending,
        }
    }
}

impl SharedHolds {
    /// Renews a hold in the store and in the counts of the fallback; one that the fallback has made (`is_local`) there
    /// alone.
    pub(super) async fn renew_hold(&self, hold: &OpenHold, is_local: bool) -> Result<SettleAnswer, Error> {
        let fallback = self.calls.fallback.as_ref();
        if let (true, Some(fallback)) = (is_local, fallback) {
            return Ok(fallback.renew_own_hold(hold));
        }
        let settlement = self.calls.change_hold(hold, HoldChange::Renew).await?;
        if let (SettleAnswer::Settled, Some(fallback)) = (settlement, fallback) {
            fallback.mirror_change(hold, HoldChange::Renew);
        }
        Ok(settlement)
    }

    /// Ends a hold that the local fallback has made. What is charged becomes a debt to the store if `is_owed`.
    /// Otherwise the store may have made the hold too, so it gets the settlement as well.
    pub(super) fn end_local_hold(
        self: &Arc<Self>,
        mut ending: Ending,
        is_owed: bool,
        runtime: Option<&Handle>,
    ) -> SettleAnswer {
        let Some(fallback) = &self.calls.fallback else { return SettleAnswer::NotHeld };
        let settlement = fallback.change_hold(&ending.hold, ending.change());
        self.waiters.hold_ended(&ending.hold.key, &ending.hold.policy);
        let is_settled = settlement == SettleAnswer::Settled;
        self.report_hold_end(&ending, if is_settled { ending.end() } else { HoldEnd::Expired });
        // The store has charged nothing for a hold that it has not made, also if the hold has ended too early.
        if is_owed {
            fallback.owe(&ending.hold.into_charge(ending.actual));
        } else {
            fallback.note_unsure(&ending.hold.key, &ending.hold.policy);
            ending.is_uncertain = true;
            self.end_hold_in_background(ending, runtime);
        }
        settlement
    }

    /// Frees what a hold takes of this instance's share without waiting for the store, if the end charges nothing. The
    /// end is sent until the store answers, and meanwhile the share must not deny others for it.
    pub(super) fn mirror_release(&self, ending: &Ending) {
        if let (0, Some(fallback)) = (ending.actual, &self.calls.fallback) {
            fallback.mirror_change(&ending.hold, ending.change());
        }
    }

    /// Notes the last answer to the end of a hold. `is_repeated`: an earlier attempt may have reached the store, so an
    /// answer that the hold had ended says that this attempt has ended it.
    pub(super) fn on_last_answer(
        self: &Arc<Self>,
        ending: &Ending,
        answer: &Result<SettleAnswer, Error>,
        is_repeated: bool,
    ) {
        let is_settled = match answer {
            Ok(settlement) => *settlement == SettleAnswer::Settled || is_repeated,
            Err(_) => false,
        };
        if let (true, Some(fallback)) = (is_settled, &self.calls.fallback) {
            fallback.mirror_change(&ending.hold, ending.change());
        }
        let end = match answer {
            Ok(_) if is_settled => ending.end(),
            Ok(_) => {
                self.charge_late(ending);
                HoldEnd::Expired
            }
            Err(_) => HoldEnd::Unanswered,
        };
        self.waiters.hold_ended(&ending.hold.key, &ending.hold.policy);
        self.report_hold_end(ending, end);
    }

    /// Reports the end of a hold to the observers.
    pub(super) fn report_hold_end(&self, ending: &Ending, end: HoldEnd) {
        let Ending { hold, held, actual, is_uncertain, .. } = ending;
        if let (Some(observer), false) = (&self.calls.observer, *is_uncertain) {
            let (policy, key, end) = (&hold.policy, ObservedKey(&hold.key), end.as_str());
            let ended = EndedHold { policy, key, held: *held, actual: *actual, end };
            observer.on_event(&Event::of_hold(ended));
        }
    }
}
