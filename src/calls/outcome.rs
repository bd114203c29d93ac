//! Turns the store's verdict or error into a decision, and updates the local fallback.

use std::{iter, sync::Arc};

use super::{Calls, Purpose};
use crate::check::{Charge, Check};
use crate::error::{Error, StoreEvidence};
use crate::observe::{CheckSpan, FailureEffect};
use crate::verdict::{Source, Verdict};
use crate::{decision::Decision, failure::FailurePolicy, fallback::Fallback};

impl Calls {
    /// Turns the store's verdict on a check, or on the check of a peek, into a decision, and reports it. Takes the
    /// charges out of `check`. `release` is called if the store may hold units for a check that is denied here.
    #[inline(always)]
    pub(crate) fn on_verdict(
        self: &Arc<Self>,
        check: &mut Check,
        verdict: &Verdict,
        purpose: Purpose,
        span: Option<Box<CheckSpan>>,
        release: impl FnOnce(&Check),
    ) -> Decision {
        self.notice_answer(verdict);
        if let Some(fallback) = &self.fallback {
            if is_admitted_by_store(verdict)
                && !fallback.mirror_if_room(verdict.charged(check), purpose.uses_fallback())
                && let Some(decision) = self.deny_beyond_share(fallback, check, verdict, release)
            {
                if let Some(span) = span {
                    span.end(Some(&*decision));
                }
                return *decision;
            }
            if verdict.source == Source::Store {
                self.settle_debts(fallback);
            }
        }
        if purpose.is_peek() || span.is_some() {
            return *self.decision_with_report(check, verdict, purpose, span);
        }
        Decision::new(check, verdict)
    }

    /// Notes that the store answers, by a verdict on which no decision is reported. The notices, the observers and the
    /// debts of the fallback depend on it.
    pub(crate) fn on_answer(self: &Arc<Self>, verdict: &Verdict) {
        self.notice_answer(verdict);
        if verdict.source != Source::Store {
            return;
        }
        if let Some(observer) = &self.observer {
            observer.on_answer();
        }
        if let Some(fallback) = &self.fallback {
            self.settle_debts(fallback);
        }
    }

    /// Ends a check that got no verdict: by the failure policy of a layer, or with an error that the caller handles.
    /// `release` is called if the store may hold units for a check that does not pass.
    #[cold]
    pub(crate) fn on_error(
        self: &Arc<Self>,
        check: &Check,
        error: Error,
        purpose: Purpose,
        failure: Option<FailurePolicy>,
        span: Option<Box<CheckSpan>>,
        release: impl FnOnce(&Check),
    ) -> Result<Decision, Error> {
        let mut result = self.without_verdict(check, error, purpose, failure, span.as_deref(), release);
        if let (true, Ok(decision)) = (purpose.is_peek_at_one(), &mut result) {
            decision.answer_peek();
        }
        if let Some(failure) = failure {
            result = Ok(failure.resolve(result));
        }
        if let Some(mut span) = span {
            if let (true, Ok(decision)) = (purpose.is_up_to(), &result) {
                span.set_cost(decision.policies().first().map_or(1, |policy| policy.cost.max(1)));
            }
            span.end(result.as_ref().ok());
        }
        result
    }

    /// Reports that the store gave no verdict, and asks the local fallback if the check uses it. A check under shadow
    /// policies alone passes in any case. Unless the check is allowed, what the store may hold is released. `failure`
    /// is the caller's failure policy, if the caller has set one; the policy is only reported here, not applied.
    fn without_verdict(
        self: &Arc<Self>,
        check: &Check,
        error: Error,
        purpose: Purpose,
        failure: Option<FailurePolicy>,
        span: Option<&CheckSpan>,
        release: impl FnOnce(&Check),
    ) -> Result<Decision, Error> {
        // A check that was held back is no failure of the store.
        if error.evidence() != StoreEvidence::HeldBack {
            let effect = self.failure_effect(check, &error, purpose, failure);
            if let Some(span) = span {
                span.failed(&error, effect);
            }
            if let Some(notices) = &self.notices {
                notices.failed(&error, effect);
            }
        }
        let may_hold = error.may_have_charged();
        let result = match &self.fallback {
            // A store that is not away has the counts: a share beside them would be a second budget.
            Some(fallback) if purpose.uses_fallback() && error.kind().follows_failure_policy() => {
                match purpose.is_peek() {
                    true if !purpose.is_peek_at_one() => fallback.peek(check, &error),
                    _ if purpose.is_up_to() => fallback.judge_up_to(check, &error),
                    _ => fallback.judge(check, &error),
                }
            }
            _ => Err(error),
        };
        // A share that is full denies a request that the store may have admitted.
        let is_allowed = matches!(&result, Ok(decision) if decision.is_allowed());
        if may_hold && !is_allowed {
            release(check);
        }
        match result {
            Err(_) if check.is_shadow() && !purpose.is_peek() => Ok(Decision::without_store(true, Source::Open)),
            result => result,
        }
    }

    /// What a check gets instead of a verdict, for reports.
    fn failure_effect(
        &self,
        check: &Check,
        error: &Error,
        purpose: Purpose,
        failure: Option<FailurePolicy>,
    ) -> FailureEffect {
        match &self.fallback {
            _ if check.is_shadow() => FailureEffect::Shadow,
            _ if !error.kind().follows_failure_policy() => failure.map(|_| FailurePolicy::Closed).into(),
            Some(fallback) if purpose.uses_fallback() && fallback.can_judge() => FailureEffect::Share,
            Some(_) if purpose.uses_fallback() && failure.is_some() => FailureEffect::UnknownShare,
            _ => failure.into(),
        }
    }

    /// The denial of a check that the store has admitted, if this instance has given its room away meanwhile: the
    /// check was sent before the store was seen to fail, or the share judged others while it was on its way. What the
    /// store has charged for it pays for what this instance owes.
    #[cold]
    fn deny_beyond_share(
        self: &Arc<Self>,
        fallback: &Arc<Fallback>,
        check: &Check,
        verdict: &Verdict,
        release: impl FnOnce(&Check),
    ) -> Option<Box<Decision>> {
        // The share must not take another alternative than the one that the store has charged.
        let charged = check.has_alternatives().then(|| Check::of_distinct(verdict.charged(check).map(Charge::alone)));
        let Ok(decision) = fallback.judge_charged(charged.as_ref().unwrap_or(check), &Self::held_back()) else {
            // The number of instances is not known any more.
            fallback.mirror(verdict.charged(check));
            return None;
        };
        if decision.is_allowed() {
            // Room has come meanwhile, and the share has counted what the store has charged.
            return None;
        }
        verdict.charged(check).filter(|charge| charge.hold.is_none()).for_each(|charge| fallback.pay(charge));
        release(check);
        self.settle_debts(fallback);
        Some(Box::new(decision))
    }

    /// Mirrors units that were spent from a block. Returns an error if this instance has given their room away
    /// meanwhile; then they pay for what it owes.
    ///
    /// Called as soon as they are spent: a check that finds the block used up is judged by the share, which must not
    /// have the same units left.
    pub(crate) fn on_spent(self: &Arc<Self>, charge: &Charge, purpose: Purpose) -> Result<(), Error> {
        let Some(fallback) = &self.fallback else { return Ok(()) };
        if fallback.mirror_if_room(iter::once(charge), purpose.uses_fallback()) {
            return Ok(());
        }
        fallback.pay(charge);
        self.settle_debts(fallback);
        Err(Self::held_back())
    }

    /// The decision of a verdict on a peek, or under an observer. Apart and boxed, so that the compiler writes other
    /// decisions only once, in their final places.
    #[cold]
    fn decision_with_report(
        &self,
        check: &mut Check,
        verdict: &Verdict,
        purpose: Purpose,
        span: Option<Box<CheckSpan>>,
    ) -> Box<Decision> {
        let mut decision = Box::new(Decision::new(check, verdict));
        if purpose.is_peek_at_one() {
            decision.answer_peek();
        }
        if let Some(span) = span {
            span.end_with_verdict(&decision, &self.near_limits);
        }
        decision
    }
}

/// Whether the store has admitted the check. What was spent from a block was mirrored before.
fn is_admitted_by_store(verdict: &Verdict) -> bool {
    verdict.allowed && verdict.source == Source::Store
}
