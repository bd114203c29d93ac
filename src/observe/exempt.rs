//! Exempt requests: they pass without a check.

/// A request that passed without a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ExemptionEvent {
    pub(crate) cause: ExemptCause,
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
    /// refused the request without a check. [`Event::WouldRefuse`](super::Event::WouldRefuse) has the reason.
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

impl ExemptionEvent {
    pub(crate) fn new(cause: ExemptCause) -> Self {
        Self { cause }
    }

    /// Why the request passed without a check, in one word: `key` if the [`KeyExtractor`](crate::KeyExtractor) returned
    /// `None`, `missing_key` if [`MissingKey::Exempt`](crate::MissingKey::Exempt) let it pass, `route` if its route is
    /// [exempt](crate::Route::exempt), and `shadow` if [shadow mode](crate::RateLimitLayer::with_shadow) did not refuse
    /// it; [`Event::WouldRefuse`](super::Event::WouldRefuse) then has the reason.
    pub fn cause(&self) -> &'static str {
        self.cause.as_str()
    }
}
