//! Requests that nothing limits.

use std::fmt;

/// A request that nothing limited. See [`Observer::on_exempt`](super::Observer::on_exempt).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Exempt {
    /// Why.
    pub cause: ExemptCause,
}

/// Why nothing limits a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ExemptCause {
    /// The [`KeyExtractor`](crate::KeyExtractor) says so, by `None`.
    Key,
    /// It has no key, and [`MissingKey::Exempt`](crate::MissingKey::Exempt) lets it pass.
    MissingKey,
    /// Its route is [exempt](crate::Route::exempt).
    Route,
}

impl ExemptCause {
    /// The cause in lower case, as metrics and logs have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::MissingKey => "missing_key",
            Self::Route => "route",
        }
    }
}

impl fmt::Display for ExemptCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Exempt {
    pub(crate) fn new(cause: ExemptCause) -> Self {
        Self { cause }
    }
}
