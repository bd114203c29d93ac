//! Tells an observer how the circuits change, in order.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::observe::{BreakerChange, BreakerState, Observer, Slot};

/// Sums up the circuits of one store: open if one is, or else probing if one is, or else closed.
///
/// An observer may take its time, and what it does may change a circuit again; so changes wait in line, and whoever is
/// telling already tells the next ones too.
#[derive(Default)]
pub(super) struct Announcer {
    observer: Slot,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    open: usize,
    probing: usize,
    waiting: VecDeque<BreakerChange>,
    telling: bool,
}

impl Line {
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

impl Announcer {
    pub(super) fn set_observer(&self, observer: &Arc<dyn Observer>) {
        self.observer.set(Arc::clone(observer));
    }

    /// Puts the change of one circuit in line; called under the circuit's lock, so that the order is right.
    pub(super) fn note(&self, from: BreakerState, to: BreakerState) {
        let mut line = self.lock();
        let before = line.state();
        if let Some(count) = line.count(from) {
            *count -= 1;
        }
        if let Some(count) = line.count(to) {
            *count += 1;
        }
        let after = line.state();
        if before != after {
            line.waiting.push_back(BreakerChange::new(before, after));
        }
    }

    /// Tells what is in line, unless somebody does already. Called without any lock.
    pub(super) fn tell(&self) {
        let mut line = self.lock();
        if line.telling {
            return;
        }
        line.telling = true;
        let _ends = Ends(self);
        while let Some(change) = line.waiting.pop_front() {
            drop(line);
            if let Some(observer) = self.observer.get() {
                observer.on_breaker_change(&change);
            }
            line = self.lock();
        }
        // Under the same lock: what comes in from now on, its own tells.
        line.telling = false;
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // No invariant spans a panic: observers are called without the lock.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An observer that panics is not to silence those that come later.
struct Ends<'a>(&'a Announcer);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().telling = false;
        }
    }
}
