//! Changes of the circuit breaker.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// The circuit breaker has changed its state.
///
/// A store with several [failure domains](crate::store::Store::failure_domains), such as a cluster, has a breaker for
/// each. A change then sums up all of them: open while one is open, else probing while one is probing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BreakerChange {
    /// The state before the change.
    pub from: BreakerState,
    /// The state after the change.
    pub to: BreakerState,
    /// Orders changes: the change with the higher number came later.
    ///
    /// Observers are called without a lock, so threads may report changes in another order than they happened. To keep
    /// the current state, ignore a change whose number is below the highest one seen. All breakers of the process share
    /// one sequence, so a gap does not mean a lost change.
    pub sequence: u64,
}

impl BreakerChange {
    /// Creates a change with the next sequence number, for stores with their own breaker.
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
    /// No checks go to the store: the failure policy decides at once.
    Open,
    /// One check tests whether the store is back.
    Probing,
}

impl BreakerState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::Probing];

    /// The state in lower case, for metrics and logs.
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
