//! Turns the store's answer into a decision, and updates the local fallback.

use std::sync::Arc;

use crate::{
    check::{Charge, Check},
    decision::Decision,
    error::{Error, ErrorKind, StoreEvidence},
    failure::FailurePolicy,
    fallback::Fallback,
    limiter::{core::Core, debit::settle_debts, purpose::Purpose},
    observe::{CheckSpan, FailureEffect},
    verdict::{Source, Verdict},
};

impl Core {
    /// Turns the store's answer into a decision and takes the charges out of `check`. `failure` is the caller's failure
    /// policy, if the caller has set one; the policy is only reported here, not applied.
    #[inline]
    pub(super) fn into_decision(
        self: &Arc<Self>,
        check: &mut Check,
        result: Result<Verdict, Error>,
        purpose: Purpose,
        failure: Option<FailurePolicy>,
        span: Option<&CheckSpan>,
    ) -> Result<Decision, Error> {
        match &result {
            Ok(verdict) => self.notice_answer(verdict),
            // A check that was held back is no failure of the store.
            Err(error) if error.evidence() == StoreEvidence::HeldBack => {}
            Err(error) => {
                if let Some(span) = span {
                    span.failed(error);
                }
                self.notice_failure(error, purpose, failure);
            }
        }
        if let Some(fallback) = &self.fallback {
            match &result {
                Ok(verdict) => self.on_verdict(fallback, check, verdict),
                // The store is healthy and has the counts: a share beside them would be a second budget.
                Err(error) if error.kind() == ErrorKind::Overloaded => {}
                Err(error) if purpose.uses_fallback() => return fallback.judge(check, error),
                Err(_) => {}
            }
        }
        // Not `map`, which would move the verdict.
        match result {
            Ok(ref verdict) => Ok(Decision::new(check, verdict)),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn notice_failure(&self, error: &Error, purpose: Purpose, failure: Option<FailurePolicy>) {
        let effect = match &self.fallback {
            Some(fallback) if purpose.uses_fallback() && fallback.can_judge() => FailureEffect::Share,
            Some(_) if purpose.uses_fallback() && failure.is_some() => FailureEffect::UnknownShare,
            _ => failure.into(),
        };
        if let Some(notices) = &self.notices {
            notices.failed(error, effect);
        }
    }

    /// Mirrors what the store has admitted, and settles the fallback's debts.
    fn on_verdict(self: &Arc<Self>, fallback: &Arc<Fallback>, check: &Check, verdict: &Verdict) {
        if verdict.source == Source::Store {
            if verdict.allowed {
                fallback.mirror(check);
            }
            settle_debts(self, fallback);
        }
    }

    /// Right after an outage, returns an error for a check that exceeds the instance's share: other instances may not
    /// yet have charged the store for what they admitted during the outage.
    pub(super) fn hold_back_while_recovering(&self, check: &Check, purpose: Purpose) -> Result<(), Error> {
        let (Some(fallback), Some(breakers)) = (&self.fallback, &self.breakers) else { return Ok(()) };
        if !purpose.uses_fallback() {
            return Ok(());
        }
        let is_recovering = |charge: &Charge| breakers.is_recovering(self.failure_domain_of(Some(&charge.key)));
        if !check.charges().iter().any(is_recovering) || fallback.has_room(check, u32::from(purpose.is_peek())) {
            return Ok(());
        }
        let message = "held back: right after an outage, other instances may still have to charge the store";
        Err(Error::new(ErrorKind::Unavailable, message).with_evidence(StoreEvidence::HeldBack))
    }
}
