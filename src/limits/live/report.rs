//! Reports of replaced and refused limits: to observers, and as lines for operators.

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    error::ConfigError,
    observe::{Event, LimitsChange, Observer, Reporter},
};

/// The report of an attempt to replace the limits, which has returned the new version. `file` is the watched file.
pub(super) fn change(file: Option<&Path>, result: &Result<u64, ConfigError>) -> LimitsChange {
    let file = file.map(Path::to_owned);
    match result {
        Ok(version) => LimitsChange::Accepted { file, version: *version },
        Err(error) => LimitsChange::Refused { file, reason: error.to_string() },
    }
}

/// The receivers of reports.
#[derive(Default)]
pub(super) struct Report(Mutex<Reporter>);

impl Report {
    pub(super) fn add(&self, observer: impl Observer) {
        self.lock().add(observer);
    }

    pub(super) fn silence(&self) {
        self.lock().silence();
    }

    /// Sends a report. No lock is held, so an observer may replace the limits.
    pub(super) fn send(&self, event: &Event<'_>) {
        let reporter = self.lock().clone();
        if let Some(listener) = reporter.listener() {
            listener.on_event(event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reporter> {
        // A panic under the lock leaves receivers that are whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
