//! The states of the circuit breaker.

use std::fmt;

/// The states of a circuit breaker.
///
/// A store with several [failure domains](crate::store::Store::failure_domains), such as a cluster, has a breaker for
/// each. The states then sum up all breakers: open if one is open, else probing if one is probing, else closed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Checks go to the store.
    Closed,
    /// No checks go to the store: the failure policy decides at once.
    Open,
    /// One check tests whether the store is back.
    Probing,
}

impl BreakerState {
    /// All states.
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::Probing];

    /// The state in lower case.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Probing => "probing",
        }
    }
}

/// The state in lower case, for metrics and logs.
impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
