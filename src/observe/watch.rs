//! One check under observation.

use std::{sync::Arc, time::Instant};

#[cfg(feature = "redis")]
use super::Batch;
use super::{Decided, Observer, StoreFailure};
use crate::{check::Check, decision::Decision, error::Error, failure::FailurePolicy};

/// Made when a check is sent, and only if somebody listens: it reads the clock and copies the check, for a decision
/// takes the charges out of it.
pub(crate) struct Watch {
    observer: Arc<dyn Observer>,
    check: Check,
    /// What the caller will make of an error, if that is known.
    failure: Option<FailurePolicy>,
    started: Instant,
}

impl Watch {
    /// Out of the way of those who have no observer.
    #[cold]
    #[inline(never)]
    pub(crate) fn start(observer: &Arc<dyn Observer>, check: &Check, failure: Option<FailurePolicy>) -> Box<Self> {
        Box::new(Self { observer: Arc::clone(observer), check: check.clone(), failure, started: Instant::now() })
    }

    /// Reports what became of the check.
    pub(crate) fn end(self, result: &Result<Decision, Error>) {
        match result {
            Ok(decision) => self.decided(decision),
            Err(error) => {
                if let Some(failure) = self.failure {
                    self.decided(&failure.resolve(Err(error.clone())));
                }
            }
        }
    }

    /// Reports a decision.
    fn decided(&self, decision: &Decision) {
        if self.check.charges().iter().any(|charge| charge.cost > 0) {
            self.observer.on_decision(&Decided::new(&self.check, decision, self.started.elapsed()));
        }
    }

    /// Reports that the store gave no verdict.
    pub(crate) fn failed(&self, error: &Error) {
        self.observer.on_store_failure(&StoreFailure::new(&self.check, error, self.started.elapsed()));
    }
}

/// One call of a store under observation. Given up with the future that makes it, it ends unanswered.
#[cfg(feature = "redis")]
pub(crate) struct Call {
    observer: Arc<dyn Observer>,
    checks: usize,
    charges: usize,
    answered: bool,
    started: Instant,
}

#[cfg(feature = "redis")]
impl Call {
    pub(crate) fn start<'a>(observer: Arc<dyn Observer>, checks: impl Iterator<Item = &'a Check>) -> Self {
        let count = |(count, charges): (usize, usize), check: &Check| (count + 1, charges + check.charges().len());
        let (checks, charges) = checks.fold((0, 0), count);
        Self { observer, checks, charges, answered: false, started: Instant::now() }
    }

    pub(crate) fn end(mut self, answered: bool) {
        self.answered = answered;
    }
}

#[cfg(feature = "redis")]
impl Drop for Call {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic, the observer's, would end the process.
            return;
        }
        let Self { checks, charges, answered, .. } = *self;
        self.observer.on_batch(&Batch { checks, charges, elapsed: self.started.elapsed(), answered });
    }
}
