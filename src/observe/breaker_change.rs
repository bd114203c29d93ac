//! Changes of the circuit breaker.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// A change of the circuit breaker's state.
///
/// A store with several [failure domains](crate::store::Store::failure_domains), such as a cluster, has a breaker for
/// each. The states then sum up all breakers: open if one is open, else probing if one is probing, else closed.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use tollgate::observe::{BreakerState, Event, Observer};
///
/// /// The state of the breaker, for a status page.
/// struct Status(Mutex<(u64, BreakerState)>);
///
/// impl Observer for Status {
///     fn on_event(&self, event: &Event<'_>) {
///         let Event::BreakerChange(change) = event else { return };
///         let mut latest = self.0.lock().expect("no panic under the lock");
///         if change.sequence > latest.0 {
///             *latest = (change.sequence, change.to);
///         }
///     }
/// }
/// # use tollgate::observe::BreakerChange;
/// # let status = Status(Mutex::new((0, BreakerState::Closed)));
/// # status.on_event(&Event::BreakerChange(BreakerChange::new(BreakerState::Closed, BreakerState::Open)));
/// # assert_eq!(status.0.lock().unwrap().1, BreakerState::Open);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BreakerChange {
    /// The state before the change.
    pub from: BreakerState,
    /// The state after the change.
    pub to: BreakerState,
    /// The number of the change: the change with the higher number came later.
    ///
    /// Observers are called without a lock, so threads may report changes in another order than that in which they
    /// happened. To keep the current state, ignore a change whose number is below the highest one seen. All breakers of
    /// the process share one sequence, so a gap does not mean a lost change.
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
