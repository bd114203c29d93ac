//! The receiver of the reports of an object that layers share: plans, and limits that are replaced.

use std::{fmt, sync::Arc};

use crate::observe::{Notices, Observer, ObserverCell, fan_out};

/// Passes reports to the observers of the limiter of the layer that was judged last. Without a layer, the object writes
/// lines by itself.
pub(crate) struct Reporter(ObserverCell);

impl Reporter {
    /// The receiver of the reports; `None` if the limiter is quiet and has no observer.
    pub(crate) fn listener(&self) -> Option<Arc<dyn Observer>> {
        self.0.get()
    }

    /// Passes the reports to the listener of a limiter from now on.
    pub(crate) fn follow(&self, listener: Option<&Arc<dyn Observer>>) {
        self.0.set(listener.cloned());
    }
}

impl Default for Reporter {
    fn default() -> Self {
        let reporter = Self(ObserverCell::default());
        reporter.follow(Some(&fan_out(None, Arc::new(Notices::default()))));
        reporter
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("is_quiet", &self.0.get().is_none()).finish()
    }
}
