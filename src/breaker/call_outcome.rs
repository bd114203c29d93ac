//! The outcome of a call, as a breaker counts it.

use crate::{
    error::{Error, ErrorKind, StoreEvidence},
    verdict::{Source, Verdict},
};

/// What the end of a call says about the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallOutcome {
    /// The store answered, with a result or with an error that says nothing about its health.
    Answered,
    /// The store cannot be reached, or answered that it cannot serve.
    Failed,
    /// The store did not answer in time.
    TimedOut,
    /// The call says nothing about the store: it was not sent, or the process itself was the cause of its failure.
    NoEvidence,
}

impl CallOutcome {
    pub(crate) fn of<T>(result: &Result<T, Error>) -> Self {
        let Err(error) = result else { return Self::Answered };
        match error.evidence() {
            StoreEvidence::FromKind | StoreEvidence::Mistake => {}
            #[cfg(feature = "redis")]
            StoreEvidence::Late => {}
            #[cfg(feature = "redis")]
            StoreEvidence::Answered => return Self::Answered,
            StoreEvidence::HeldBack | StoreEvidence::NotSent => return Self::NoEvidence,
        }
        match error.kind() {
            ErrorKind::Deadline => Self::TimedOut,
            ErrorKind::Unavailable => Self::Failed,
            ErrorKind::Overloaded => Self::NoEvidence,
            // A breaker that opened on these kinds would stay open: each probe gets the same reply.
            ErrorKind::BadKey | ErrorKind::InvalidCall | ErrorKind::StoreMisconfigured => Self::Answered,
        }
    }

    /// The outcome of a check. A verdict of the deny cache says nothing, because the store was not asked.
    pub(crate) fn of_verdict(result: &Result<Verdict, Error>) -> Self {
        match result {
            Ok(verdict) if verdict.source == Source::DenyCache => Self::NoEvidence,
            _ => Self::of(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_verdicts_of_the_store_are_evidence_that_the_store_answers() {
        for (source, outcome) in [(Source::Store, CallOutcome::Answered), (Source::DenyCache, CallOutcome::NoEvidence)]
        {
            let verdict = Verdict { allowed: false, source, time_us: 0, outcomes: Default::default() };
            assert_eq!(CallOutcome::of_verdict(&Ok(verdict)), outcome);
        }
    }
}
