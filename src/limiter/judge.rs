//! The way of a check: to the store, and from its answer to a decision.

use std::sync::Arc;

use super::{CheckFuture, Limiter, Purpose, Sent};
use crate::{
    breaker::{Breakers, CallOutcome, Permit},
    check::{Charge, Check},
    decision::Decision,
    error::{Error, ErrorKind, StoreEvidence},
    failure::FailurePolicy,
    fallback::{Fallback, pay},
    key::Key,
    observe::{CheckSpan, FailureEffect, Observer, Refused},
    rejection::Reason,
    store::Answer,
    verdict::{Source, Verdict},
};

impl Limiter {
    /// Sends the check: the decision itself where the store knows it at once, otherwise the future of it.
    /// Takes the charges out of it. `failure` is what the caller makes of an error, for the observer.
    #[inline]
    pub(crate) fn send(&self, check: &mut Check, purpose: Purpose, failure: Option<FailurePolicy>) -> Sent {
        // A debit is no request of anybody's: what it pays for has been told when it was admitted.
        let observer = self.parts.observer.as_ref().filter(|_| purpose != Purpose::Debit);
        let span = observer.map(|observer| CheckSpan::start(observer, check, failure));
        match self.parts.store.check(check) {
            Answer::Ready(result) => {
                let result = self.conclude(check, result, purpose, failure, span.as_deref());
                if let Some(span) = span {
                    span.end(&result);
                }
                Sent::Decided(result)
            }
            Answer::Pending(verdict) => {
                let check = std::mem::replace(check, Check::empty());
                Sent::Waiting(CheckFuture::sent(purpose, failure, self.clone(), check, verdict, span))
            }
        }
    }

    /// Receives warnings and refusals.
    #[inline]
    pub(crate) fn listener(&self) -> Option<&dyn Observer> {
        self.parts.listener.as_deref()
    }

    /// Whether both are clones of one limiter.
    pub(crate) fn shares_store(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parts.store, &other.parts.store)
    }

    /// Tells of a request that does not become a check.
    #[cold]
    pub(crate) fn refused(&self, reason: &Reason) {
        if let Some(listener) = self.listener() {
            listener.on_refusal(&Refused::new(reason));
        }
    }

    pub(super) fn breakers(&self) -> Option<&Arc<Breakers>> {
        self.parts.breakers.as_ref()
    }

    /// Whether checks may fail local.
    pub(crate) fn has_fallback(&self) -> bool {
        self.fallback().is_some()
    }

    pub(super) fn fallback(&self) -> Option<&Arc<Fallback>> {
        self.parts.fallback.as_ref()
    }

    /// Charges what the fallback has admitted.
    pub(crate) fn debit(&self, check: Check) -> CheckFuture {
        CheckFuture::unsent(Purpose::Debit, self.clone(), check)
    }

    /// Makes a decision of what the store has said.
    #[inline]
    pub(super) fn conclude(
        &self,
        check: &mut Check,
        result: Result<Verdict, Error>,
        purpose: Purpose,
        failure: Option<FailurePolicy>,
        span: Option<&CheckSpan>,
    ) -> Result<Decision, Error> {
        match &result {
            Ok(verdict) => self.notice_answer(verdict),
            // The store is well.
            Err(error) if error.evidence() == StoreEvidence::HeldBack => {}
            Err(error) => {
                if let Some(span) = span {
                    span.failed(error);
                }
                self.notice_failure(error, purpose, failure);
            }
        }
        if let Some(fallback) = self.fallback()
            && purpose != Purpose::Debit
        {
            match &result {
                Ok(verdict) => self.answered(fallback, check, verdict),
                // The store is well, and has the counts: a share beside it would be a second budget.
                Err(error) if error.kind() == ErrorKind::Overloaded => {}
                Err(error) if purpose.is_local() => return fallback.judge(check, error),
                Err(_) => {}
            }
        }
        result.map(|verdict| Decision::new(check, verdict))
    }

    #[inline]
    fn notice_answer(&self, verdict: &Verdict) {
        if let Some(notices) = &self.parts.notices
            && notices.awaits_answer()
            && verdict.source == Source::Store
        {
            notices.answered();
        }
    }

    #[cold]
    fn notice_failure(&self, error: &Error, purpose: Purpose, failure: Option<FailurePolicy>) {
        if purpose == Purpose::Debit {
            return;
        }
        let outcome = match self.fallback() {
            Some(fallback) if purpose.is_local() && fallback.can_judge() => FailureEffect::Share,
            Some(_) if purpose.is_local() && failure.is_some() => FailureEffect::UnknownShare,
            _ => failure.into(),
        };
        if let Some(notices) = &self.parts.notices {
            notices.failed(error, outcome);
        }
    }

    /// What the store's answer means for the fallback.
    fn answered(&self, fallback: &Arc<Fallback>, check: &Check, verdict: &Verdict) {
        if verdict.source == Source::Store {
            if verdict.allowed {
                fallback.warm(check);
            }
            pay(self, fallback);
        }
    }

    /// Refuses, right after an outage, what is above the instance's share: the store does not know yet what the other
    /// instances have admitted.
    pub(super) fn cautiously(&self, check: &Check, purpose: Purpose) -> Result<(), Error> {
        let (Some(fallback), Some(breakers)) = (self.fallback(), self.breakers()) else { return Ok(()) };
        if !purpose.is_local() {
            return Ok(());
        }
        let is_recovering = |charge: &Charge| breakers.is_recovering(self.part_of(Some(&charge.key)));
        if !check.charges().iter().any(is_recovering) || fallback.has_room(check, u32::from(purpose.is_peek())) {
            return Ok(());
        }
        let message = "not asked, for it may not know everything yet";
        Err(Error::new(ErrorKind::Unavailable, message).with_evidence(StoreEvidence::HeldBack))
    }

    /// Asks the breaker. Answers that are there at once are not its business.
    pub(super) fn admit(&self, key: Option<&Key>) -> Result<Option<Permit>, Error> {
        self.breakers().map(|breakers| breakers.admit(self.part_of(key))).transpose()
    }

    fn part_of(&self, key: Option<&Key>) -> usize {
        key.map_or(0, |key| self.parts.store.failure_domain_of(key))
    }

    pub(super) fn settle(&self, permit: Option<Permit>, signal: CallOutcome) {
        if let (Some(breakers), Some(permit)) = (self.breakers(), permit) {
            breakers.settle(permit, signal);
        }
    }
}
