//! The text about a check without a verdict: what happened, what the request got, what to do.

use std::fmt;

#[cfg(feature = "tracing")]
use super::StoreFailure;
use crate::{
    error::{Error, ErrorKind},
    failure::FailurePolicy,
};

/// Says that limits are not enforced.
pub(crate) struct Unenforced<'a> {
    pub(super) cause: &'a dyn fmt::Display,
    pub(super) kind: ErrorKind,
    /// `None` for a limiter that is called directly.
    pub(super) failure: Option<FailurePolicy>,
}

impl<'a> Unenforced<'a> {
    pub(super) fn new(error: &'a Error, failure: Option<FailurePolicy>) -> Self {
        Self { cause: error, kind: error.kind(), failure }
    }

    #[cfg(feature = "tracing")]
    pub(super) fn of(failure: &StoreFailure<'a>) -> Self {
        Self::new(failure.error, failure.failure)
    }

    /// What requests get instead of a verdict.
    fn outcome(&self) -> &'static str {
        match (self.failure, self.kind) {
            (None, _) => "The caller of the limiter gets this error.",
            (Some(_), ErrorKind::Overloaded) => "Requests that wait too long are refused with 503.",
            (Some(FailurePolicy::Open), _) => "Requests pass without a limit (fail_open).",
            (Some(FailurePolicy::Closed), _) => "Requests are refused with 503 (fail_closed).",
            (Some(FailurePolicy::Local), _) => "Requests are judged by this instance's share (fail_local).",
        }
    }

    fn remedy(&self) -> &'static str {
        match self.kind {
            ErrorKind::BadKey => {
                "A key of this limiter holds another program's value: delete that key, or set another key prefix."
            }
            ErrorKind::Config => "Correct the check.",
            ErrorKind::Deadline => "Check that the store is not slow or frozen, and the network to it.",
            ErrorKind::Misconfigured => "Check the store's address, its login and its permissions.",
            ErrorKind::Overloaded => "This process sends more checks than the store answers in time.",
            ErrorKind::Unavailable => "Check that the store runs, can be reached from here and takes writes.",
        }
    }
}

impl fmt::Display for Unenforced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What Redis says may end with a full stop or not.
        let cause = self.cause.to_string();
        write!(f, "Limits are not enforced: {}. {} {}", cause.trim_end_matches('.'), self.outcome(), self.remedy())
    }
}
