//! One check under observation.

use std::{sync::Arc, time::Instant};

#[cfg(feature = "redis")]
use super::Batch;
use super::{Abandoned, Decided, Observer, StoreFailure};
use crate::{check::Check, decision::Decision, error::Error, failure::FailurePolicy};

/// Made when a check is sent, and only if somebody listens: it reads the clock and copies the check, for a decision
/// takes the charges out of it. Given up with the future that waits for the verdict, it says so.
pub(crate) struct CheckSpan {
    observer: Arc<dyn Observer>,
    check: Check,
    /// What the caller will make of an error, if that is known.
    failure: Option<FailurePolicy>,
    /// Whether somebody waits for the verdict.
    waits: bool,
    started: Instant,
}

impl CheckSpan {
    /// Out of the way of those who have no observer.
    #[cold]
    #[inline(never)]
    pub(crate) fn start(observer: &Arc<dyn Observer>, check: &Check, failure: Option<FailurePolicy>) -> Box<Self> {
        Box::new(Self {
            observer: Arc::clone(observer),
            check: check.clone(),
            failure,
            waits: false,
            started: Instant::now(),
        })
    }

    /// Says that the store is being asked.
    pub(crate) fn waits(&mut self) {
        self.waits = true;
    }

    /// Reports what became of the check.
    pub(crate) fn end(mut self, result: &Result<Decision, Error>) {
        self.waits = false;
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
        if self.owes() {
            self.observer.on_decision(&Decided::new(&self.check, decision, self.started.elapsed()));
        }
    }

    /// Reports that the store gave no verdict.
    pub(crate) fn failed(&self, error: &Error) {
        self.observer.on_store_failure(&StoreFailure::new(&self.check, error, self.failure, self.started.elapsed()));
    }

    fn owes(&self) -> bool {
        self.check.charges().iter().any(|charge| charge.cost > 0)
    }
}

impl Drop for CheckSpan {
    fn drop(&mut self) {
        // In a panic the observer's own, a second one, would end the process.
        if self.waits && self.owes() && !std::thread::panicking() {
            self.observer.on_abandoned(&Abandoned::new(&self.check, self.started.elapsed()));
        }
    }
}

/// One call of a store under observation. Given up with the future that makes it, it ends unanswered.
#[cfg(feature = "redis")]
pub(crate) struct BatchSpan {
    observer: Arc<dyn Observer>,
    checks: usize,
    charges: usize,
    answered: bool,
    started: Instant,
}

#[cfg(feature = "redis")]
impl BatchSpan {
    /// Begins a call. `charges` yields the number of charges of each check.
    pub(crate) fn start(observer: Arc<dyn Observer>, charges: impl Iterator<Item = usize>) -> Self {
        let (checks, charges) = charges.fold((0, 0), |(checks, sum), charges| (checks + 1, sum + charges));
        Self { observer, checks, charges, answered: false, started: Instant::now() }
    }

    pub(crate) fn end(mut self, answered: bool) {
        self.answered = answered;
    }
}

#[cfg(feature = "redis")]
impl Drop for BatchSpan {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // As above.
            return;
        }
        let Self { checks, charges, answered, .. } = *self;
        self.observer.on_batch(&Batch { checks, charges, elapsed: self.started.elapsed(), answered });
    }
}
