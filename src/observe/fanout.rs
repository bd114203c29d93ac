//! Several observers as one, and a place for an observer that is set later. Only the code below calls an observer, and
//! it contains a panic of one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use smallvec::SmallVec;

use crate::observe::log_line::{Topic, write_line};
use crate::observe::{Event, Observer};

/// Adds an observer to those that were set before, and returns all of them as one.
pub(crate) fn fan_out(first: Option<Arc<dyn Observer>>, second: Arc<dyn Observer>) -> Arc<dyn Observer> {
    Arc::new(Fanout { observers: first.into_iter().chain([second]).collect(), has_panicked: AtomicBool::new(false) })
}

/// Passes every event to each observer in turn.
struct Fanout {
    observers: SmallVec<[Arc<dyn Observer>; 2]>,
    /// Whether a panic of an observer has been reported.
    has_panicked: AtomicBool,
}

impl Fanout {
    /// Calls each observer. A panic ends the call of that observer alone: watching a request must not change it, and
    /// events are also reported while a request unwinds, where a second panic would abort the process.
    fn each(&self, call: impl Fn(&dyn Observer)) {
        for observer in &self.observers {
            if catch_unwind(AssertUnwindSafe(|| call(&**observer))).is_err() {
                self.report_panic();
            }
        }
    }

    #[cold]
    fn report_panic(&self) {
        if !self.has_panicked.swap(true, Ordering::Relaxed) {
            let text = "An observer panicked. It misses the event, and no request is affected. Correct the observer; \
                        its further panics are not reported here.";
            write_line(Topic::Setup, text, false);
        }
    }
}

impl Observer for Fanout {
    fn on_event(&self, event: &Event<'_>) {
        self.each(|observer| observer.on_event(event));
    }

    fn traces(&self) -> bool {
        self.observers.iter().any(|observer| observer.traces())
    }

    fn on_answer(&self) {
        self.each(|observer| observer.on_answer());
    }
}

/// The observer of an object that exists before its observer is set. Read once for each call of the store, not for each
/// check.
#[derive(Default)]
pub(crate) struct ObserverCell(RwLock<Option<Arc<dyn Observer>>>);

impl ObserverCell {
    pub(crate) fn set(&self, observer: Option<Arc<dyn Observer>>) {
        // The value is replaced as a whole, so a poisoned lock is usable.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = observer;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Observer>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
