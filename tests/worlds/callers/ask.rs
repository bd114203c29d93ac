//! A call in progress, which is recorded however it ends.

use std::time::Duration;

use tollgate::{Decision, Error, decision::Source};

use crate::history::{self, Call, Outcome, may_last_until};
use crate::{place::Place, plan::mode::Mode, rare, time::now};

/// Recorded when it is dropped, as gone unless it was answered.
pub(super) struct Ask {
    call: Option<Call>,
}

impl Ask {
    pub(super) fn start(mode: Mode, place: Place, key: u64, cost: u64) -> Self {
        let (asked, outcome) = (now(), Outcome::Gone);
        let (answered, charged_by, most, by_share, worked) = (asked, asked, cost, false, None);
        let call =
            Call { mode, key, place, cost, asked, answered, charged_by, most, by_share, worked, outcome, web: None };
        Self { call: Some(call) }
    }

    /// The answer of a check.
    pub(super) fn answer(mut self, result: Result<Decision, Error>) {
        let outcome = match result {
            Ok(decision) if decision.is_allowed() => {
                self.decided(&decision);
                self.change(|call| call.charged_by = now());
                let charged = decision.policies().first().map(|policy| policy.cost);
                Outcome::Admitted { charged: charged.unwrap_or_else(|| self.cost()) }
            }
            Ok(decision) => return self.deny(&decision),
            Err(error) => return self.fail(&error),
        };
        self.end(outcome);
    }

    pub(super) fn deny(mut self, decision: &Decision) {
        self.decided(decision);
        if decision.source() == Source::Closed {
            self.change(|call| call.charged_by = may_last_until(call.mode));
            return self.end(Outcome::Failed { what: "refused".to_owned(), may_have_charged: true });
        }
        // Not one unit has fitted.
        self.change(|call| call.cost = if call.mode.is_parts() { 1 } else { call.cost });
        let retry_after = decision.retry_after().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self.end(Outcome::Denied { retry_after });
    }

    pub(super) fn fail(mut self, error: &Error) {
        rare::failed(error);
        self.change(|call| call.charged_by = may_last_until(call.mode));
        let what = format!("{:?}: {error}", error.kind());
        self.end(Outcome::Failed { what, may_have_charged: error.may_have_charged() });
    }

    /// The call was made, which it was charged for.
    pub(super) fn has_reached(mut self, charged: u64) {
        self.change(|call| call.charged_by = now());
        self.end(Outcome::Admitted { charged });
    }

    /// The call was not made.
    pub(super) fn refuse(mut self, retry_after: Option<Duration>) {
        let retry_after = retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self.end(Outcome::Denied { retry_after });
    }

    fn decided(&mut self, decision: &Decision) {
        self.change(|call| call.by_share = decision.source() == Source::Local);
        let waited = self.call.as_ref().map_or(0, |call| now() - call.asked);
        rare::decided(decision, waited);
    }

    /// The count of this key is the one that was charged.
    pub(super) fn concerns(&mut self, key: u64) {
        self.change(|call| call.key = key);
    }

    fn cost(&self) -> u64 {
        self.call.as_ref().map_or(0, |call| call.cost)
    }

    fn change(&mut self, work: impl FnOnce(&mut Call)) {
        if let Some(call) = &mut self.call {
            work(call);
        }
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(mut call) = self.call.take() {
            call.answered = now();
            call.outcome = outcome;
            history::record(call);
        }
    }

    /// The answer was an open hold: what follows is the work under it.
    pub(super) fn hold(mut self, decision: &Decision) -> Work {
        self.decided(decision);
        let mut call = self.call.take().expect("an answer comes once");
        call.answered = now();
        call.worked = call.mode.is_slots().then(|| (now(), now()));
        call.outcome = Outcome::Admitted { charged: 0 };
        Work { call: Some(call) }
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        self.change(|call| call.charged_by = may_last_until(call.mode));
        self.end(Outcome::Gone);
    }
}

/// Work under a hold, which is recorded however it ends.
pub(super) struct Work {
    call: Option<Call>,
}

impl Work {
    /// The work has ended, and the hold ends now. It charges this at most, also if no answer arrives.
    pub(super) fn ended(&mut self, charged: u64) {
        if let Some(call) = &mut self.call {
            call.most = call.most.max(charged);
            call.worked = call.worked.map(|(begun, _)| (begun, now()));
        }
    }

    /// The hold has ended with this charge, which the store has confirmed. Without a confirmation it may end later, and
    /// as if nothing had been said.
    pub(super) fn settled(mut self, charged: u64, is_confirmed: bool) {
        if let Some(call) = &mut self.call {
            call.charged_by = if is_confirmed { now() } else { may_last_until(call.mode) };
            call.most = if is_confirmed { charged } else { charged.max(call.cost) };
            call.outcome = Outcome::Admitted { charged: if is_confirmed { charged } else { 0 } };
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(mut call) = self.call.take() {
            // The process or the runtime has ended during the work.
            if call.charged_by == call.asked {
                call.worked = call.worked.map(|(begun, _)| (begun, now()));
                call.charged_by = may_last_until(call.mode);
            }
            history::record(call);
        }
    }
}
