//! The receivers of an object's reports: its observers, several as one, and the lines that it writes by itself. Only
//! this file calls an observer, and it contains a panic of one.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use smallvec::SmallVec;

use crate::observe::{
    Event, Notices, Observer,
    log_line::{Topic, write_line},
};

/// Reports of an object that is not a limiter. A limiter has further receivers, see `limiter/setup.rs`.
#[derive(Clone)]
pub(crate) struct Reporter {
    observer: Option<Arc<dyn Observer>>,
    /// `None` if the object is quiet.
    notices: Option<Arc<Notices>>,
    /// The observer, the notices, or both.
    listener: Option<Arc<dyn Observer>>,
}

impl Reporter {
    /// The receiver of the reports; `None` if the object is quiet and has no observer.
    pub(crate) fn listener(&self) -> Option<&dyn Observer> {
        self.listener.as_deref()
    }

    pub(crate) fn add(&mut self, observer: impl Observer) {
        let observer = fan_out(self.observer.take(), Arc::new(observer));
        self.notices = self.notices.take().map(|_| Arc::new(Notices::new(observer.traces())));
        self.observer = Some(observer);
        self.listen();
    }

    pub(crate) fn silence(&mut self) {
        self.notices = None;
        self.listen();
    }

    fn listen(&mut self) {
        self.listener = match self.notices.clone() {
            Some(notices) => Some(fan_out(self.observer.clone(), notices)),
            None => self.observer.clone(),
        };
    }
}

impl Default for Reporter {
    /// No observer; the object reports by itself.
    fn default() -> Self {
        let mut reporter = Self { observer: None, notices: Some(Arc::default()), listener: None };
        reporter.listen();
        reporter
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("is_quiet", &self.notices.is_none()).finish_non_exhaustive()
    }
}

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
