//! Reports of changes: to observers, in metrics and in the log.

use std::sync::{Arc, Mutex};

use metrics::set_default_local_recorder;
use tollgate::{
    GlobalKey, LiveLimits,
    observe::{Event, LimitsChange, Metrics, Observer, Tracing},
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
    fn on_event(&self, event: &Event<'_>) {
        if let Event::LimitsChange(change) = event {
            self.0.lock().unwrap().push(change.clone());
        }
    }
}

#[test]
fn every_observer_receives_accepted_and_refused_changes() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let changes = Changes::default();
    let live = LiveLimits::new(only("rate = '10/min'")).with_observer(changes.clone()).with_observer(Metrics::new());
    let layer = live.layer(limiter(), GlobalKey).unwrap().with_cost(8);
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

/// A writer of the file could otherwise add lines to the log, hide lines or colour them.
#[test]
fn an_error_of_a_file_is_one_line_of_the_log_with_its_control_characters_escaped() {
    let text = "[policies.p]\nrate = '60/min'\n[default]\npolicies = ['p']\n[default.costs]\n\"q\\n\\u001B[2K\" = 1\n";
    let mut reason = super::files::read(text).unwrap_err().to_string();
    assert_eq!(reason.lines().count(), 1, "a mistake is a line: {reason}");
    reason.push_str("\nWARN forged: \u{1b}[31mred\rover\u{2028}end");
    let file = Some("/etc/limits\nWARN forged.toml".into());
    let changes = [
        LimitsChange::Refused { file: file.clone(), reason: reason.clone() },
        LimitsChange::Unreadable { file: file.clone().unwrap(), reason },
        LimitsChange::Accepted { file, version: 2 },
    ];
    let (log, _guard) = Log::start(Level::INFO);
    for change in changes {
        Tracing::new().on_event(&Event::LimitsChange(change.clone()));
        let lines = log.take();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(!lines[0].contains(char::is_control) && !lines[0].contains('\u{2028}'), "{lines:?}");
        assert!(lines[0].contains(r"/etc/limits\nWARN forged.toml"), "{lines:?}");
        if change.outcome() != "accepted" {
            assert!(lines[0].contains(r"\u{1b}[31mred\rover\u{2028}end"), "{lines:?}");
        }
    }
}

/// The errors of a database have several lines too.
#[test]
fn an_error_of_a_source_of_plans_is_one_line_of_the_log() {
    let (log, _guard) = Log::start(Level::INFO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let source = |_: tollgate::Key| async { Err::<tollgate::Policy, _>("syntax error\nWARN forged") };
        let plans = tollgate::plans::Plans::new(source, crate::support::app::per_minute(5)).unwrap();
        let _ = plans.with_observer(Tracing::new()).get("17");
        tokio::task::yield_now().await;
    });
    let lines = log.take();
    assert!(matches!(&lines[..], [line] if line.contains(r"syntax error\nWARN forged")), "{lines:?}");
}

/// The caller has the error.
#[test]
fn a_refused_replacement_by_hand_writes_no_line() {
    let (log, _guard) = Log::start(Level::INFO);
    let live = LiveLimits::new(only("rate = '10/min'"));
    let layer = live.layer(limiter(), GlobalKey).unwrap().with_cost(8);
    assert!(live.replace(only("rate = '5/min'")).is_err());
    assert_eq!(log.take(), [""; 0]);
    drop(layer);
}
