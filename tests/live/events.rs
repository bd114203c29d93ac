//! Reports of changes: to observers, in metrics and in the log.

use std::sync::{Arc, Mutex};

use metrics::set_default_local_recorder;
use tollgate::{
    GlobalKey, LiveLimits,
    observe::{LimitsChange, Metrics, Observer, Tracing},
};
use tracing::Level;

use super::files::only;
use crate::support::{
    app::limiter,
    log::Log,
    scrape::{assert_shows, recorder},
};

/// Records changes.
#[derive(Clone, Default)]
pub(super) struct Changes(Arc<Mutex<Vec<LimitsChange>>>);

impl Changes {
    pub(super) fn take(&self) -> Vec<LimitsChange> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(super) fn last_is_accepted(&self) -> bool {
        self.0.lock().unwrap().last().is_some_and(|change| change.outcome() == "accepted")
    }
}

impl Observer for Changes {
    fn on_limits_change(&self, change: &LimitsChange) {
        self.0.lock().unwrap().push(change.clone());
    }
}

#[test]
fn every_observer_receives_accepted_and_refused_changes() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let changes = Changes::default();
    let live = LiveLimits::new(only("rate = '10/min'")).with_observer(changes.clone()).with_observer(Metrics::new());
    let layer = live.layer(limiter(), GlobalKey).unwrap().with_cost(8).unwrap();
    live.replace(only("rate = '20/min'")).unwrap();
    let error = live.replace(only("rate = '5/min'")).unwrap_err();
    let refused = LimitsChange::Refused { file: None, reason: error.to_string() };
    assert_eq!(changes.take(), [LimitsChange::Accepted { file: None, version: 2 }, refused]);
    assert_shows(
        &handle,
        &[
            r#"tollgate_limits_changes_total{outcome="accepted"} 1"#,
            r#"tollgate_limits_changes_total{outcome="refused"} 1"#,
        ],
    );
    drop(layer);
}

#[test]
fn the_tracing_observer_logs_changes() {
    let (log, _guard) = Log::start(Level::INFO);
    let live = LiveLimits::new(only("rate = '10/min'")).with_observer(Tracing::new());
    live.replace(only("rate = '20/min'")).unwrap();
    let [line] = &log.take()[..] else { panic!("not one line") };
    assert!(line.starts_with("INFO tollgate::limits: New limits are in force (version 2)."), "{line}");
}

/// The caller has the error.
#[test]
fn a_refused_replacement_by_hand_writes_no_line() {
    let (log, _guard) = Log::start(Level::INFO);
    let live = LiveLimits::new(only("rate = '10/min'"));
    let layer = live.layer(limiter(), GlobalKey).unwrap().with_cost(8).unwrap();
    assert!(live.replace(only("rate = '5/min'")).is_err());
    assert_eq!(log.take(), [""; 0]);
    drop(layer);
}
