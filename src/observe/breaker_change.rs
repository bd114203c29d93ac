//! Changes of the circuit breaker.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// The circuit breaker went from one state to another.
///
/// A store of several [failure domains](crate::store::Store::failure_domains), as on a cluster, has a breaker for each. Then one change stands for all
/// of them: open as long as one is, or else probing as long as one is. Which part it was is not told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BreakerChange {
    /// What it was.
    pub from: BreakerState,
    /// What it is now.
    pub to: BreakerState,
    /// Orders changes: of two, the one with the higher number came later.
    ///
    /// Observers are called without a lock, so threads may report changes in another order than they happened in. To keep
    /// the state, ignore a change whose number is below the highest that you have seen. One sequence numbers the
    /// changes of all breakers in the process, so a gap is no loss.
    pub sequence: u64,
}

impl BreakerChange {
    /// Creates a change that happens now, for stores with a breaker of their own.
    pub fn new(from: BreakerState, to: BreakerState) -> Self {
        static LATEST: AtomicU64 = AtomicU64::new(0);
        Self { from, to, sequence: LATEST.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// The states of a circuit breaker.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Checks go to the store.
    Closed,
    /// None does: the failure policy decides at once.
    Open,
    /// One check finds out whether the store is back.
    Probing,
}

impl BreakerState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::Probing];

    /// The state in lower case, as metrics and logs have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Probing => "probing",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
