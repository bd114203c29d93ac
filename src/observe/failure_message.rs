//! The message about a check without a verdict: what happened, what the request got, what to do.

use std::fmt;

#[cfg(feature = "tracing")]
use crate::observe::event::StoreFailure;
use crate::{
    error::{Error, ErrorKind},
    failure::FailurePolicy,
};

/// The message about a check without a verdict, for logs.
pub(crate) struct FailureMessage<'a> {
    cause: &'a Error,
    effect: FailureEffect,
}

/// What a request gets instead of a verdict.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FailureEffect {
    /// The caller of the limiter gets the error instead of a decision.
    Error,
    Pass,
    Refusal,
    /// Only shadow policies apply to the check, so it passes under every failure policy.
    Shadow,
    /// Judged by this instance's share of the limit.
    Share,
    /// Refused, because the number of instances is not known yet.
    UnknownShare,
}

impl From<Option<FailurePolicy>> for FailureEffect {
    fn from(failure: Option<FailurePolicy>) -> Self {
        match failure {
            None => Self::Error,
            Some(FailurePolicy::Closed) => Self::Refusal,
            Some(FailurePolicy::Local) => Self::Share,
            Some(FailurePolicy::Open) => Self::Pass,
        }
    }
}

/// Remedies for causes that contain a certain word. They take precedence over the remedy for the kind of error.
const REMEDIES: &[(&str, &str)] = &[
    // The cause with this word contains its remedy.
    ("enable_all()", ""),
    (" DB index", "Correct the number after the last slash of the store's URL."),
    (" NOAUTH ", "Write the login into the store's URL: redis://user:password@host."),
    (" NOPERM ", "Grant the user what the docs of `RedisStore` list as the least ACL."),
    (" OOM ", "Raise the server's maxmemory, or give the limiter a separate server."),
    (" WRONGPASS ", "Correct the login in the store's URL."),
];

impl<'a> FailureMessage<'a> {
    pub(super) fn new(error: &'a Error, effect: FailureEffect) -> Self {
        Self { cause: error, effect }
    }

    #[cfg(feature = "tracing")]
    pub(super) fn of(failure: &StoreFailure<'a>) -> Self {
        let effect = if failure.is_shadow() { FailureEffect::Shadow } else { failure.failure.into() };
        Self::new(failure.error, effect)
    }

    fn effect(&self) -> &'static str {
        match self.effect {
            FailureEffect::Error => "The caller of the limiter gets this error.",
            FailureEffect::Pass => "Requests pass without a limit (fail_open).",
            FailureEffect::Refusal => "Requests are refused with 503 (fail_closed).",
            FailureEffect::Shadow => "Requests pass, because only shadow policies apply to them.",
            FailureEffect::Share => "Requests are judged by this instance's share (fail_local).",
            FailureEffect::UnknownShare => {
                "Requests are refused with 503 (fail_local): the number of instances is not known yet."
            }
        }
    }

    fn remedy(&self, cause: &str) -> &'static str {
        if let Some((_, remedy)) = REMEDIES.iter().find(|(word, _)| cause.contains(word)) {
            return remedy;
        }
        match self.cause.kind() {
            ErrorKind::BadKey => {
                "Reset this key with tollgate-inspect, or delete its value. If another program writes it, set another \
                 key prefix."
            }
            ErrorKind::Config => "Correct the call that the error names.",
            ErrorKind::Deadline => "Check that the store is not slow or frozen, and the network to it.",
            ErrorKind::Misconfigured => "Check the store's address, its login and its permissions.",
            ErrorKind::Overloaded => {
                "This process sends more checks than the store answers in time: use a faster store, or a cluster."
            }
            ErrorKind::Unavailable => "Check that the store runs, can be reached from here and takes writes.",
        }
    }
}

impl fmt::Display for FailureMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages of Redis end with or without a full stop.
        let cause = self.cause.to_string();
        let cause = cause.trim_end_matches('.');
        match (self.cause.kind(), self.effect) {
            (ErrorKind::Overloaded, FailureEffect::Shadow) => {
                write!(f, "Limits are not counted: {cause}. {}", self.effect())?
            }
            // Every failure policy refuses a check of an overloaded process.
            (ErrorKind::Overloaded, FailureEffect::Error) => write!(f, "Checks get no verdict: {cause}.")?,
            (ErrorKind::Overloaded, _) => write!(f, "Requests are refused with 503: {cause}.")?,
            _ => write!(f, "Limits are not enforced: {cause}. {}", self.effect())?,
        }
        match self.remedy(cause) {
            "" => Ok(()),
            remedy => write!(f, " {remedy}"),
        }
    }
}
