//! What observers are told, as values that a test compares.

use tollgate::observe::{BreakerState, Event};

/// A change of the breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BreakerChange {
    pub(crate) from: BreakerState,
    pub(crate) to: BreakerState,
    pub(crate) sequence: u64,
}

impl BreakerChange {
    /// The change that the event reports, if it reports one.
    pub(crate) fn of(event: &Event<'_>) -> Option<Self> {
        match *event {
            Event::BreakerChange { from, to, sequence } => Some(Self { from, to, sequence }),
            _ => None,
        }
    }
}
