//! Exempt requests: they pass without a check.

use std::fmt;

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
}

impl ExemptCause {
    /// The cause in lower case.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::MissingKey => "missing_key",
            Self::Route => "route",
            Self::Shadow => "shadow",
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
        };
        write!(f, "A request passed without a check: {cause}.")
    }
}
