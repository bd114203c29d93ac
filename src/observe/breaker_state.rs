//! The states of the circuit breaker.

/// The states of a circuit breaker, or of all breakers of a store. Events have the [words](Self::as_str).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BreakerState {
    /// Checks go to the store.
    Closed,
    /// No checks go to the store: the failure policy decides at once.
    Open,
    /// One check tests whether the store is back.
    Probing,
}

impl BreakerState {
    /// The words of all states.
    #[cfg(feature = "metrics")]
    pub(super) const WORDS: [&'static str; 3] = [Self::Closed.as_str(), Self::Open.as_str(), Self::Probing.as_str()];

    /// The state in lower case, for events, metrics and logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Probing => "probing",
        }
    }
}
