//! Reports of replaced and refused limits: to observers, and as lines for operators.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    error::ConfigError,
    observe::{LimitsChange, Observer, Warning, fan_out, report_limits_change, report_limits_warning},
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
pub(super) struct Report(Mutex<Receivers>);

#[derive(Clone, Default)]
struct Receivers {
    observer: Option<Arc<dyn Observer>>,
    is_quiet: bool,
}

impl Report {
    pub(super) fn add(&self, observer: impl Observer) {
        let mut receivers = self.lock();
        receivers.observer = Some(fan_out(receivers.observer.take(), Arc::new(observer)));
    }

    pub(super) fn silence(&self) {
        self.lock().is_quiet = true;
    }

    /// Sends a report. No lock is held, so an observer may replace the limits.
    pub(super) fn send(&self, change: &LimitsChange) {
        let Receivers { observer, is_quiet } = self.lock().clone();
        // The caller of `replace` has the error of a refusal. A file has no caller.
        if !is_quiet && !matches!(change, LimitsChange::Refused { file: None, .. }) {
            report_limits_change(change, observer.as_ref().is_some_and(|observer| observer.traces()));
        }
        if let Some(observer) = observer {
            observer.on_limits_change(change);
        }
    }

    /// Sends a warning about limits in force. No lock is held.
    pub(super) fn warn(&self, warning: &Warning) {
        let Receivers { observer, is_quiet } = self.lock().clone();
        if !is_quiet {
            report_limits_warning(warning, observer.as_ref().is_some_and(|observer| observer.traces()));
        }
        if let Some(observer) = observer {
            observer.on_warning(warning);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Receivers> {
        // The fields are replaced as a whole, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
