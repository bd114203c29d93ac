//! Reports changes of a store's breakers to an observer.

use std::sync::{Arc, Mutex, PoisonError};

use crate::observe::{BreakerState, Event, Observer, ObserverCell};

/// Sums up the breakers of one store as one state: open if one is open, else probing if one is probing, else closed.
///
/// Observers are called without a lock, because they may block or do something that changes a breaker again.
/// Two threads may therefore report two changes in either order; their sequence numbers say which came first.
#[derive(Default)]
pub(super) struct Notifier {
    observer: ObserverCell,
    counts: Mutex<NotClosed>,
}

/// Number of breakers in each state other than closed.
#[derive(Default)]
struct NotClosed {
    open: usize,
    probing: usize,
}

impl NotClosed {
    fn state(&self) -> BreakerState {
        match (self.open, self.probing) {
            (0, 0) => BreakerState::Closed,
            (0, _) => BreakerState::Probing,
            _ => BreakerState::Open,
        }
    }

    fn count_mut(&mut self, state: BreakerState) -> Option<&mut usize> {
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

    /// Counts the change of one breaker. Returns the change of the sum, if there is one.
    ///
    /// Must be called under the breaker's lock, so that sequence numbers follow the order of changes.
    pub(super) fn count(&self, from: BreakerState, to: BreakerState) -> Option<Event<'static>> {
        // No foreign code runs under the lock, so the counts stay valid and a poisoned lock is usable.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = counts.state();
        if let Some(count) = counts.count_mut(from) {
            *count -= 1;
        }
        if let Some(count) = counts.count_mut(to) {
            *count += 1;
        }
        let after = counts.state();
        (before != after).then(|| Event::breaker_change(before, after))
    }

    /// Reports a change. Must be called without a lock.
    pub(super) fn report(&self, change: &Event<'static>) {
        if let Some(observer) = self.observer.get() {
            observer.on_event(change);
        }
    }
}
