//! Requests that the middleware refuses without a check.

use std::fmt;

use crate::{
    error::ConfigError,
    key::{KeyError, KeyFault},
    observe::request::ObservedRequest,
};

/// A request that the middleware refused without a check, or would have refused if it were not for shadow mode.
///
/// Its `Display` is the reason in a sentence: no usable key, a cost above the limit, or a misconfigured layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusalEvent<'a> {
    request: ObservedRequest<'a>,
    pub(crate) reason: &'a RefusalReason,
}

/// Why a request was refused without a check.
#[derive(Clone, Debug)]
pub(crate) enum RefusalReason {
    /// The request costs more than can ever pass at once.
    CostAboveLimit {
        /// The policy's name.
        policy: String,
        /// The cost of the request, in units.
        cost: u64,
        /// The largest cost that can pass, in units.
        limit: u64,
    },
    /// The request has no usable key, or a key that is denied.
    Key(KeyError),
    /// The layer has a [mistake](crate::RateLimitLayer#mistakes), or its configuration is wrong for this request, for
    /// example because a closure returned no policy.
    Misconfigured(ConfigError),
}

impl<'a> RefusalEvent<'a> {
    pub(crate) fn new(reason: &'a RefusalReason, request: ObservedRequest<'a>) -> Self {
        Self { request, reason }
    }

    pub(super) fn request(&self) -> ObservedRequest<'a> {
        self.request
    }

    /// The reason in one word, for metrics and logs: `cost_above_limit`, `misconfigured`, `missing_key` or
    /// `unusable_key`.
    pub(super) fn cause(&self) -> &'static str {
        match self.reason {
            RefusalReason::CostAboveLimit { .. } => "cost_above_limit",
            RefusalReason::Key(KeyError(KeyFault::MissingExtension(_))) | RefusalReason::Misconfigured(_) => {
                "misconfigured"
            }
            RefusalReason::Key(error) if error.is_missing() => "missing_key",
            RefusalReason::Key(_) => "unusable_key",
        }
    }

    /// Whether the cause is a wrong setup of the service, which no client can avoid.
    pub(super) fn is_misconfiguration(&self) -> bool {
        matches!(
            self.reason,
            RefusalReason::Misconfigured(_)
                | RefusalReason::Key(KeyError(KeyFault::MissingExtension(_) | KeyFault::NoPeerAddress))
        )
    }
}

/// The reason in a sentence. It names headers and policies, and contains no key.
impl fmt::Display for RefusalEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RefusalReason::CostAboveLimit { policy, cost, limit } => {
                write!(
                    f,
                    "a cost of {cost} can never pass policy {policy:?}, which lets at most {limit} through at once"
                )
            }
            RefusalReason::Key(error) => error.fmt(f),
            RefusalReason::Misconfigured(error) => error.fmt(f),
        }
    }
}
