//! The denial: the reason for a refused request, and the wait until it may be repeated.

use std::{error::Error, fmt, time::Duration};

use http::{HeaderValue, StatusCode};

use crate::decision::{Decision, PolicyDecision};
use crate::key::{KeyError, KeyFault};
use crate::{error::ConfigError, headers::OUTAGE_RETRY_AFTER, observe::RefusalReason, verdict::Source};

/// Why a request was refused, and when it may be repeated. The layer puts a denial into the extensions of the response.
///
/// A handler that calls a [`Limiter`](crate::Limiter) gets a denial from [`Decision::into_result`] or from an
/// [`Error`](crate::Error). With feature `axum`, the handler can return the denial as its response; without the
/// feature, [`Denial::respond`] builds the response.
///
/// # Examples
///
/// An outer layer logs why responses were refused:
///
/// ```
/// use http::Response;
/// use tollgate::rejection::Denial;
///
/// fn log<B>(response: &Response<B>) {
///     if let Some(denial) = response.extensions().get::<Denial>() {
///         // rate limit exceeded: per-client; retry after 12s
///         eprintln!("{denial}");
///     }
/// }
/// # log(&Response::new(()));
/// ```
#[derive(Clone, Debug)]
pub struct Denial {
    cause: Box<Cause>,
    pub(super) retry_after: Option<Duration>,
    /// The source of the decision, if the store gave no verdict.
    pub(super) source: Option<Source>,
    /// Whether the response says nothing about the limit.
    pub(super) is_hidden: bool,
    /// Whether a rejection has the denial. Its caller then adds the RateLimit fields to the response.
    pub(super) leaves_fields: bool,
}

/// The reasons for a [`Denial`]. Its message has the details: names of policies, costs and limits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// A policy of the request is [blocked](crate::Policy::blocked), so no wait helps.
    Blocked,
    /// The cost of the request can never pass, so no wait helps.
    CostAboveLimit,
    /// A hold of the request has reached its [longest age](crate::policy::HoldSettings::with_longest) before there was
    /// a response. The handler has had the request.
    HeldTooLong,
    /// The request has no usable key, or its key is denied. The [source](Error::source) of the denial is the
    /// [`KeyError`].
    Key,
    /// The layer's configuration is wrong for this request. The [source](Error::source) of the denial is the
    /// [`ConfigError`].
    Misconfigured,
    /// The quota is spent. [`Denial::decision`] has the policies.
    QuotaExceeded,
    /// The store could not answer, and the failure policy is closed; or the process sent more checks than the store
    /// answers within the deadline ([`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded)); or a
    /// [wait for units](crate::Limiter::acquire) has ended before anything was known of the key.
    StoreUnavailable,
}

/// A [`Reason`] with its details.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    Blocked {
        policy: String,
    },
    CostAboveLimit {
        policy: String,
        cost: u64,
        /// The most units that can pass at once.
        limit: u64,
    },
    HeldTooLong {
        policy: String,
        /// The longest age.
        longest: Duration,
    },
    Key(KeyError),
    Misconfigured(ConfigError),
    QuotaExceeded(Decision),
    StoreUnavailable,
}

impl From<RefusalReason> for Cause {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::CostAboveLimit { policy, cost, limit } => Self::CostAboveLimit { policy, cost, limit },
            RefusalReason::Key(error) => Self::Key(error),
            RefusalReason::Misconfigured(error) => Self::Misconfigured(error),
        }
    }
}

impl Denial {
    pub(super) fn new(cause: Cause) -> Self {
        let retry_after = match &cause {
            Cause::QuotaExceeded(decision) => decision.retry_after(),
            Cause::StoreUnavailable => Some(OUTAGE_RETRY_AFTER),
            Cause::Blocked { .. }
            | Cause::CostAboveLimit { .. }
            | Cause::HeldTooLong { .. }
            | Cause::Key(_)
            | Cause::Misconfigured(_) => None,
        };
        Self { cause: Box::new(cause), retry_after, source: None, is_hidden: false, leaves_fields: false }
    }

    /// Creates the denial of a request that the layer refuses without a check.
    pub(crate) fn unchecked(reason: RefusalReason) -> Self {
        Self::new(reason.into())
    }

    /// Creates the denial of a request with a hold that has reached its longest age.
    pub(crate) fn held_too_long(policy: String, longest: Duration) -> Self {
        Self::new(Cause::HeldTooLong { policy, longest })
    }

    /// Creates the denial of a denied decision.
    pub(crate) fn of(decision: Decision) -> Self {
        let source = decision.source();
        let cause = match source {
            Source::Closed | Source::Open | Source::Overloaded => return Self::without_verdict(source),
            // The wait has ended before the store has said anything about the key.
            Source::Queue | Source::WaitersFull if decision.policies().is_empty() => {
                return Self::without_verdict(source);
            }
            Source::Policy => {
                let blocked = decision.violated().next().map(|blocked| blocked.policy.name().to_owned());
                let cause = Cause::Blocked { policy: blocked.unwrap_or_default() };
                return Self { source: Some(source), ..Self::new(cause) };
            }
            Source::DenyCache | Source::Lease | Source::Local | Source::Queue | Source::Store | Source::WaitersFull => {
                let never_fits = decision.violated().find(|policy| policy.never_fits());
                never_fits.map(|PolicyDecision { policy, cost, .. }| Cause::CostAboveLimit {
                    policy: policy.name().to_owned(),
                    cost: *cost,
                    limit: policy.capacity(),
                })
            }
        };
        Self::new(cause.unwrap_or(Cause::QuotaExceeded(decision)))
    }

    fn without_verdict(source: Source) -> Self {
        Self { source: Some(source), ..Self::new(Cause::StoreUnavailable) }
    }

    /// The same denial, from which a response learns no wait and no limit.
    pub(super) fn hidden(self) -> Self {
        Self { retry_after: None, is_hidden: true, ..self }
    }

    pub(crate) fn set_retry_after(&mut self, wait: Duration) {
        self.retry_after = Some(wait);
    }

    /// Returns the reason for the refusal.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::rejection::{Denial, Reason};
    ///
    /// /// Only a spent quota counts as abuse.
    /// fn is_abuse(denial: &Denial) -> bool {
    ///     denial.reason() == Reason::QuotaExceeded
    /// }
    /// ```
    pub fn reason(&self) -> Reason {
        match *self.cause {
            Cause::Blocked { .. } => Reason::Blocked,
            Cause::CostAboveLimit { .. } => Reason::CostAboveLimit,
            Cause::HeldTooLong { .. } => Reason::HeldTooLong,
            Cause::Key(_) => Reason::Key,
            Cause::Misconfigured(_) => Reason::Misconfigured,
            Cause::QuotaExceeded(_) => Reason::QuotaExceeded,
            Cause::StoreUnavailable => Reason::StoreUnavailable,
        }
    }

    /// The reason, with its details.
    pub(super) fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns the HTTP status.
    ///
    /// The status is 429 for a spent quota, 503 while the store cannot answer, 504 for a hold that was too old, 401 for
    /// a missing credential, 403 for a denied address or key or a blocked policy, 400 for another missing or unusable
    /// key or a cost that can never pass, and 500 for a misconfigured layer or a layer outside the layer that inserts
    /// its key.
    pub fn status(&self) -> StatusCode {
        match *self.cause {
            Cause::Blocked { .. } | Cause::Key(KeyError(KeyFault::AddressDenied | KeyFault::Denied)) => {
                StatusCode::FORBIDDEN
            }
            Cause::Key(KeyError(KeyFault::MissingCredential { .. })) => StatusCode::UNAUTHORIZED,
            // A missing extension is a wrong order of layers, which is not the client's mistake.
            Cause::Key(KeyError(KeyFault::MissingExtension(_))) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::CostAboveLimit { .. } | Cause::Key(_) => StatusCode::BAD_REQUEST,
            Cause::Misconfigured(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::QuotaExceeded(_) => StatusCode::TOO_MANY_REQUESTS,
            Cause::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Cause::HeldTooLong { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Returns the time until the request may be repeated; `None` if no wait helps.
    ///
    /// The wait includes the [jitter](crate::headers::HeaderWriter::with_jitter); the wait of the decision does not.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the denied decision; `None` if the request was refused without a verdict of the store, or its cost can
    /// never pass.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::rejection::Denial;
    ///
    /// /// The names of the policies that a client has exhausted.
    /// fn exhausted(denial: &Denial) -> Vec<&str> {
    ///     let violated =
    ///         denial.decision().into_iter().flat_map(|decision| decision.violated());
    ///     violated.map(|violated| violated.policy.name()).collect()
    /// }
    /// ```
    pub fn decision(&self) -> Option<&Decision> {
        match self.cause() {
            Cause::QuotaExceeded(decision) => Some(decision),
            _ => None,
        }
    }

    /// The `WWW-Authenticate` field of a response with status 401; `None` if no credential is missing.
    pub(super) fn challenge(&self) -> Option<&HeaderValue> {
        match self.cause() {
            Cause::Key(KeyError(KeyFault::MissingCredential { challenge, .. })) => Some(challenge),
            _ => None,
        }
    }

    /// A sentence for the client. Contains no key, no address, no value of a header and no error of the store.
    pub(super) fn detail(&self) -> Option<String> {
        match self.cause() {
            Cause::Blocked { policy } => Some(format!("Policy {policy} lets no request through.")),
            Cause::CostAboveLimit { policy, .. } if self.is_hidden => {
                Some(format!("The request costs more than policy {policy} lets through at once; it can never pass."))
            }
            Cause::CostAboveLimit { policy, cost, limit } => Some(format!(
                "The request costs {cost} units, more than the {limit} that policy {policy} lets through at once; \
                 it can never pass."
            )),
            Cause::Key(KeyError(KeyFault::MissingCredential { header, .. })) => {
                Some(format!("The request has no credential in the header {header}."))
            }
            // The error names a type of the service's code, so it goes to the log alone.
            Cause::Key(KeyError(KeyFault::MissingExtension(_))) => Some(
                "The rate limit of this service is set up wrongly; the log of the service has the cause.".to_owned(),
            ),
            Cause::Key(KeyError(KeyFault::MissingHeader(header))) => {
                Some(format!("The request has no header {header}."))
            }
            // These errors name a mistake in the setup and contain no secret, so the response may show them to the
            // operator.
            Cause::Key(error @ KeyError(KeyFault::NoPeerAddress)) => Some(error.to_string()),
            Cause::Misconfigured(error) => Some(error.to_string()),
            Cause::HeldTooLong { longest, .. } => {
                Some(format!("The request took longer than the {longest:?} that are allowed."))
            }
            Cause::Key(_) | Cause::QuotaExceeded(_) | Cause::StoreUnavailable => None,
        }
    }
}

/// Writes the reason and the wait, for logs. The text may name policies and headers and contains no key.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause() {
            Cause::Blocked { policy } => write!(f, "request refused: policy {policy:?} is blocked"),
            Cause::CostAboveLimit { policy, cost, limit } => write!(
                f,
                "request refused: a cost of {cost} can never pass policy {policy:?}, which lets at most {limit} \
                 through at once"
            ),
            Cause::HeldTooLong { policy, longest } => {
                write!(f, "request ended: it has held units of policy {policy:?} for {longest:?}")
            }
            Cause::Key(error) => write!(f, "request refused: {error}"),
            Cause::Misconfigured(error) => write!(f, "request refused: {error}"),
            Cause::QuotaExceeded(decision) => {
                let names: Vec<&str> = decision.violated().map(|policy| policy.policy.name()).collect();
                write!(f, "rate limit exceeded: {}", names.join(", "))
            }
            Cause::StoreUnavailable => f.write_str("rate limiter unavailable"),
        }?;
        match self.retry_after() {
            Some(wait) => write!(f, "; retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

/// The source is the [`KeyError`] or the [`ConfigError`] whose text the message contains.
impl Error for Denial {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.cause() {
            Cause::Key(error) => Some(error),
            Cause::Misconfigured(error) => Some(error),
            _ => None,
        }
    }
}
