//! Several observers as one. Only the code below calls an observer, and it contains a panic of one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use smallvec::SmallVec;

use crate::observe::{
    Event, Observer,
    log_line::{Topic, write_line},
};

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
    /// Calls each observer. A panic ends the call of that observer alone: watching a request must not change it, and
    /// events are also reported while a request unwinds, where a second panic would abort the process.
    fn on_event(&self, event: &Event<'_>) {
        for observer in &self.observers {
            if catch_unwind(AssertUnwindSafe(|| observer.on_event(event))).is_err() {
                self.report_panic();
            }
        }
    }

    fn traces(&self) -> bool {
        self.observers.iter().any(|observer| observer.traces())
    }
}
