//! Combines the evaluations of one check by several slots of a cluster into one verdict.

use smallvec::SmallVec;

use crate::{
    check::Check,
    error::{Error, ErrorKind},
    policy::Policy,
    verdict::{Outcome, Source, Verdict},
};

/// The results of one check, from the slots that have answered so far.
pub(crate) struct Findings {
    /// By charge; `None` where the slot has not answered.
    outcomes: SmallVec<[Option<Outcome>; 4]>,
    /// When the first slot evaluated its part, by its clock.
    time_us: Option<u64>,
    is_denied: bool,
    /// The first error of a slot that decides.
    failure: Option<Error>,
    /// The first error of a slot in which only shadow policies count.
    failure_of_others: Option<Error>,
}

impl Findings {
    /// Findings about a check, before any slot has answered.
    pub(crate) fn new(check: &Check) -> Self {
        let outcomes = SmallVec::from_elem(None, check.charges().len());
        Self { outcomes, time_us: None, is_denied: false, failure: None, failure_of_others: None }
    }

    /// Whether the check cannot be committed, whatever the other slots find.
    pub(crate) fn are_decisive(&self) -> bool {
        self.is_denied || self.failure.is_some()
    }

    /// Adds the result of the slot that has the charges at `indices`. `decides` is `false` if all of them are shadow
    /// charges.
    pub(crate) fn add(&mut self, indices: &[u8], decides: bool, result: Result<Verdict, Error>) {
        match result {
            Ok(verdict) => {
                for (&index, outcome) in indices.iter().zip(&verdict.outcomes) {
                    self.outcomes[usize::from(index)] = Some(*outcome);
                }
                self.time_us.get_or_insert(verdict.time_us);
                self.is_denied |= !verdict.allowed;
            }
            Err(error) => {
                let failure = if decides { &mut self.failure } else { &mut self.failure_of_others };
                failure.get_or_insert(error);
            }
        }
    }

    /// The verdict on the check. A denial wins over an error: the check does not fit, whatever the failed slot would
    /// have answered.
    pub(crate) fn into_verdict(self, check: &Check) -> Result<Verdict, Error> {
        match (self.failure, self.time_us) {
            (Some(error), _) if !self.is_denied => Err(error),
            (_, Some(time_us)) => {
                let known = self.outcomes.iter().flatten();
                let wait = known.filter(|outcome| !outcome.fits).filter_map(|outcome| outcome.retry_after_us).max();
                let wait_us = wait.unwrap_or(0);
                let unknown = |policy: &Policy| match self.is_denied {
                    true => unknown_until(wait_us),
                    false => unspent(policy),
                };
                let outcomes = self.outcomes.iter().zip(check.charges());
                let outcomes = outcomes.map(|(outcome, charge)| outcome.unwrap_or_else(|| unknown(&charge.policy)));
                let outcomes = outcomes.collect();
                Ok(Verdict { allowed: !self.is_denied, source: Source::Store, time_us, outcomes })
            }
            (_, None) => Err(self.failure_of_others.unwrap_or_else(no_charge)),
        }
    }
}

/// The outcome of a charge whose slot has not answered, beside a denial with a wait of `wait_us`.
///
/// The charge does not deny the check. It has nothing available until the check may be repeated.
fn unknown_until(wait_us: u64) -> Outcome {
    Outcome { fits: true, available: 0, retry_after_us: None, next_us: wait_us, reset_us: wait_us, ban_us: 0 }
}

/// The outcome of a shadow charge whose slot has not answered, in a check that passes: as if nothing were spent, so
/// that no report follows from it.
fn unspent(policy: &Policy) -> Outcome {
    Outcome { fits: true, available: policy.capacity(), retry_after_us: None, next_us: 0, reset_us: 0, ban_us: 0 }
}

/// The error of a task that ended with its runtime.
pub(crate) fn given_up() -> Error {
    Error::new(ErrorKind::Unavailable, "the tokio runtime of the call has ended")
}

/// The error of a check without charges.
pub(crate) fn no_charge() -> Error {
    Error::new(ErrorKind::InvalidCall, "the check has no charge")
}
