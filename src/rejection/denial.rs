//! The denial: why a request was refused, and when it may be repeated.

use std::{fmt, time::Duration};

use http::StatusCode;

use crate::{
    decision::{Decision, PolicyDecision},
    error::ConfigError,
    key::KeyError,
    observe::RefusalReason,
    verdict::Source,
};

/// Why a request was refused. Also in the extensions of the response.
///
/// Handlers that check by hand get one from [`Decision::into_result`] or from an [`Error`](crate::Error), and answer
/// with it: with feature `axum` it is a response, without it see [`Denial::respond`].
#[derive(Clone, Debug)]
pub struct Denial {
    reason: Box<Reason>,
    pub(super) retry_after: Option<Duration>,
    /// Where a decision without a verdict comes from.
    pub(super) source: Option<Source>,
}

/// The reasons for a [`Denial`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The request costs more than can ever pass, so no wait helps.
    CostAboveLimit {
        /// The policy's name.
        policy: String,
        /// What the request costs.
        cost: u32,
        /// The most that can pass at once.
        limit: u32,
    },
    /// The request has no usable key, or one that is refused ([`KeyError::AddressDenied`]).
    Key(KeyError),
    /// The layer's configuration turned out to be wrong for this request.
    Misconfigured(ConfigError),
    /// The quota is spent.
    QuotaExceeded(Decision),
    /// The store could not answer, and the failure policy is closed; or more checks waited for it than it answers within
    /// the deadline.
    StoreUnavailable,
}

impl From<RefusalReason> for Reason {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::CostAboveLimit { policy, cost, limit } => Self::CostAboveLimit { policy, cost, limit },
            RefusalReason::Key(error) => Self::Key(error),
            RefusalReason::Misconfigured(error) => Self::Misconfigured(error),
        }
    }
}

impl Denial {
    /// What a client is told when the store is down, unless the layer says otherwise: soon enough to notice its return.
    pub(crate) const OUTAGE_RETRY_AFTER: Duration = Duration::from_secs(1);

    pub(crate) fn new(reason: Reason) -> Self {
        let retry_after = match &reason {
            Reason::QuotaExceeded(decision) => decision.retry_after(),
            Reason::StoreUnavailable => Some(Self::OUTAGE_RETRY_AFTER),
            Reason::CostAboveLimit { .. } | Reason::Key(_) | Reason::Misconfigured(_) => None,
        };
        Self { reason: Box::new(reason), retry_after, source: None }
    }

    /// The denial of a decision that is denied.
    pub(crate) fn of(decision: Decision) -> Self {
        let source = decision.source();
        let reason = match source {
            Source::Closed | Source::Open | Source::Overloaded => {
                return Self { source: Some(source), ..Self::new(Reason::StoreUnavailable) };
            }
            Source::DenyCache | Source::Local | Source::Store => {
                let hopeless = decision.violated().find(|policy| policy.never_fits());
                hopeless.map(|PolicyDecision { policy, cost, .. }| Reason::CostAboveLimit {
                    policy: policy.name().to_owned(),
                    cost: *cost,
                    limit: policy.capacity(),
                })
            }
        };
        Self::new(reason.unwrap_or(Reason::QuotaExceeded(decision)))
    }

    pub(crate) fn set_retry_after(&mut self, wait: Duration) {
        self.retry_after = Some(wait);
    }

    /// The reason.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The fitting status: 429 for a spent quota, 503 for a store that is down, 403 for an address that is
    /// refused, 400 for a request that cannot be judged, 500 for a layer that cannot judge it or stands outside the layer
    /// that inserts its key.
    pub fn status(&self) -> StatusCode {
        match *self.reason {
            Reason::Key(KeyError::AddressDenied) => StatusCode::FORBIDDEN,
            // The client has no part in the order of layers.
            Reason::Key(KeyError::MissingExtension(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Reason::CostAboveLimit { .. } | Reason::Key(_) => StatusCode::BAD_REQUEST,
            Reason::Misconfigured(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Reason::QuotaExceeded(_) => StatusCode::TOO_MANY_REQUESTS,
            Reason::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The status, with `quota_status` in place of 429 for a spent quota.
    pub(super) fn status_or(&self, quota_status: Option<StatusCode>) -> StatusCode {
        match self.reason() {
            Reason::QuotaExceeded(_) => quota_status.unwrap_or(self.status()),
            _ => self.status(),
        }
    }

    /// When the request may be repeated; `None` if no wait helps.
    ///
    /// With [jitter](crate::headers::Writer::with_jitter), if there is some; the decision has the wait itself.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The store's decision, if it made one.
    pub fn decision(&self) -> Option<&Decision> {
        match &*self.reason {
            Reason::QuotaExceeded(decision) => Some(decision),
            _ => None,
        }
    }

    /// What a client may read beyond the reason's name: nothing of the client, nothing of the store.
    pub(super) fn detail(&self) -> Option<String> {
        match &*self.reason {
            Reason::CostAboveLimit { policy, cost, limit } => Some(format!(
                "The request costs {cost} units, more than the {limit} that policy {policy} lets through at once; \
                 it can never pass."
            )),
            // Not the client's doing and without a secret: whoever sets up the server has to see it.
            Reason::Key(error @ (KeyError::MissingExtension(_) | KeyError::NoPeerAddress)) => Some(error.to_string()),
            Reason::Misconfigured(error) => Some(error.to_string()),
            Reason::Key(_) | Reason::QuotaExceeded(_) | Reason::StoreUnavailable => None,
        }
    }
}

/// The reason and the wait, for logs. It names policies and headers, and no key.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Reason::CostAboveLimit { policy, cost, limit } => write!(
                f,
                "request refused: a cost of {cost} can never pass policy {policy:?}, which lets at most {limit} through at \
                 once"
            ),
            Reason::Key(error) => write!(f, "request refused: {error}"),
            Reason::Misconfigured(error) => write!(f, "request refused: {error}"),
            Reason::QuotaExceeded(decision) => {
                let names: Vec<&str> = decision.violated().map(|policy| policy.policy.name()).collect();
                write!(f, "rate limit exceeded: {}", names.join(", "))
            }
            Reason::StoreUnavailable => f.write_str("rate limiter unavailable"),
        }?;
        match self.retry_after() {
            Some(wait) => write!(f, "; retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Denial {}
