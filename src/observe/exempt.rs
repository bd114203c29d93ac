//! Exempt requests: they pass without a check.

use std::fmt;

/// A request that passed without a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ExemptionEvent {
    /// Why the request passed without a check.
    pub cause: ExemptCause,
}

/// Why a request passes without a check.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ExemptCause {
    /// The [`KeyExtractor`](crate::KeyExtractor) returned `None`.
    Key,
    /// The request has no key, and [`MissingKey::Exempt`](crate::MissingKey::Exempt) lets it pass.
    MissingKey,
    /// The route is [exempt](crate::Route::exempt).
    Route,
    /// The layer, or each policy of the key, is in [shadow mode](crate::RateLimitLayer::with_shadow), and would have
    /// refused the request without a check. [`Event::WouldRefuse`](super::Event::WouldRefuse) has the reason.
    Shadow,
}

impl ExemptCause {
    /// The cause in lower case, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::MissingKey => "missing_key",
            Self::Route => "route",
            Self::Shadow => "shadow",
        }
    }
}

impl fmt::Display for ExemptCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ExemptionEvent {
    pub(crate) fn new(cause: ExemptCause) -> Self {
        Self { cause }
    }
}
