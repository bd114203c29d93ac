//! The receivers of an object's reports: its observers, and the lines that it writes by itself.

use std::{fmt, sync::Arc};

use crate::observe::{Notices, Observer, fan_out};

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
