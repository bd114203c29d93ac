//! Reports to an observer how the breakers of one store change.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use crate::observe::{BreakerChange, BreakerState, Observer, ObserverCell};

/// Sums up the breakers of one store: open if one is, or else probing if one is, or else closed.
///
/// An observer is called without a lock: it may take its time, panic, or do what changes a breaker again. So two threads
/// may report two changes in either order; their numbers say which came first.
#[derive(Default)]
pub(super) struct Notifier {
    observer: ObserverCell,
    counts: Mutex<Counts>,
}

/// How many breakers are not closed.
#[derive(Default)]
struct Counts {
    open: usize,
    probing: usize,
}

impl Counts {
    fn state(&self) -> BreakerState {
        match (self.open, self.probing) {
            (0, 0) => BreakerState::Closed,
            (0, _) => BreakerState::Probing,
            _ => BreakerState::Open,
        }
    }

    fn count(&mut self, state: BreakerState) -> Option<&mut usize> {
        match state {
            BreakerState::Closed => None,
            BreakerState::Open => Some(&mut self.open),
            BreakerState::Probing => Some(&mut self.probing),
        }
    }
}

impl Notifier {
    pub(super) fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.observer.set(observer.cloned());
    }

    /// Counts the change of one breaker, and returns what it changes for the store. Called under the breaker's lock, so
    /// that the numbers are in order.
    pub(super) fn count(&self, from: BreakerState, to: BreakerState) -> Option<BreakerChange> {
        // No invariant spans a panic: nothing under the lock calls out.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = counts.state();
        if let Some(count) = counts.count(from) {
            *count -= 1;
        }
        if let Some(count) = counts.count(to) {
            *count += 1;
        }
        let after = counts.state();
        (before != after).then(|| BreakerChange::new(before, after))
    }

    /// Reports a change. Called without any lock.
    pub(super) fn report(&self, change: &BreakerChange) {
        let Some(observer) = self.observer.get() else { return };
        if thread::panicking() {
            // A probe is dropped while its task unwinds. A second panic that left the drop would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.on_breaker_change(change)));
        } else {
            observer.on_breaker_change(change);
        }
    }
}
