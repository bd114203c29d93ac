//! An observer that panics, or does not.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::observe::{Event, Observer};

use crate::plan::Watch;

/// Watches everything. If it panics, at every second event.
#[derive(Debug)]
pub(crate) struct Onlooker {
    panics: bool,
    events: AtomicU64,
}

impl Onlooker {
    /// The onlooker of a plan, if it has one.
    pub(crate) fn of(watch: Watch) -> Option<Self> {
        let panics = watch == Watch::Panics;
        (watch != Watch::Nobody).then(|| Self { panics, events: AtomicU64::new(0) })
    }

    fn event(&self) {
        if self.panics && self.events.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            resume_unwind(Box::new("an observer panics"));
        }
    }
}

impl Observer for Onlooker {
    fn on_event(&self, _: &Event<'_>) {
        self.event();
    }
}
