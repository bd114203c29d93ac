//! The request behind an event, and the requests that get no check: refused by the middleware, or exempt.

use std::fmt;

use http::Method;

use crate::error::ConfigError;
use crate::key::{KeyError, KeyFault};

/// The request that a layer has checked or refused, without anything that identifies its client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ObservedRequest<'a> {
    /// The HTTP method; `other` for a method that RFC 9110 and RFC 5789 do not define.
    pub(super) method: &'static str,
    /// The template of the router or the path of an entry of the layer, never the path that the client has sent.
    pub(super) route: Option<&'a str>,
}

impl<'a> ObservedRequest<'a> {
    pub(crate) fn new(method: &Method, route: Option<&'a str>) -> Self {
        Self { method: name(method), route }
    }

    pub(super) fn to_stored(self) -> StoredRequest {
        StoredRequest { method: self.method, route: self.route.map(Box::from) }
    }
}

/// A request that an event refers to after the request has gone to its handler.
#[derive(Clone, Debug)]
pub(super) struct StoredRequest {
    method: &'static str,
    route: Option<Box<str>>,
}

impl StoredRequest {
    pub(super) fn get(&self) -> ObservedRequest<'_> {
        ObservedRequest { method: self.method, route: self.route.as_deref() }
    }
}

/// The name of a method. Clients can make up any number of other methods.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::CONNECT => "CONNECT",
        Method::DELETE => "DELETE",
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::TRACE => "TRACE",
        _ => "other",
    }
}

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

/// Why a request passes without a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ExemptCause {
    /// The [`KeyExtractor`](crate::KeyExtractor) returned `None`.
    Key,
    /// The request has no key, and [`MissingKey::Exempt`](crate::MissingKey::Exempt) lets it pass.
    MissingKey,
    /// The route is [exempt](crate::Route::exempt).
    Route,
    /// The layer, or each policy of the key, is in [shadow mode](crate::RateLimitLayer::with_shadow), and would have
    /// refused the request without a check. A further event has the reason.
    Shadow,
    /// The plan of its key is [unlimited](crate::policy::Policies::unlimited).
    Unlimited,
}

impl ExemptCause {
    /// The cause in lower case.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::MissingKey => "missing_key",
            Self::Route => "route",
            Self::Shadow => "shadow",
            Self::Unlimited => "unlimited",
        }
    }
}

/// The message about an exempt request.
impl fmt::Display for ExemptCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self {
            Self::Key => "its key is exempt",
            Self::MissingKey => "it has no key",
            Self::Route => "its route is exempt",
            Self::Shadow => "shadow mode does not refuse it",
            Self::Unlimited => "its plan is unlimited",
        };
        write!(f, "A request passed without a check: {cause}.")
    }
}
