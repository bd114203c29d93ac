//! Reports of changes: to observers, in metrics and in the log.

use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::{fs, path::Path, time::Duration};

use metrics::set_default_local_recorder;
use tollgate::observe::{Event, Metrics, Observer, Tracing};
use tollgate::{GlobalKey, LiveLimits, RateLimitLayer};
use tracing::Level;

use super::files::{Directory, only, read};
use crate::support::scrape::{assert_shows, recorder};
use crate::support::{app::limiter, log::Log, observed::other};

/// A change, as observers see it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) outcome: &'static str,
    text: String,
}

impl Change {
    /// New limits are in force. `file` is the watched file.
    pub(super) fn accepted(file: Option<&Path>, version: u64) -> Self {
        Self { outcome: "accepted", text: format!("New limits{} are in force (version {version}).", of(file)) }
    }

    /// The reason for which new limits are refused.
    #[track_caller]
    pub(super) fn refused(&self, file: Option<&Path>) -> &str {
        self.reason("refused", &format!("New limits{} are refused, and the old limits stay in force: ", of(file)), "")
    }

    /// The reason for which the file cannot be read.
    #[track_caller]
    pub(super) fn unreadable(&self, file: &Path) -> &str {
        let before = format!("The limits in {} cannot be read (", file.display());
        self.reason("unreadable", &before, "), and the old limits stay in force. Restore the file.")
    }

    #[track_caller]
    fn reason(&self, outcome: &str, before: &str, after: &str) -> &str {
        assert_eq!(self.outcome, outcome, "{}", self.text);
        let reason = self.text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        reason.unwrap_or_else(|| panic!("{before:?} or {after:?} is not in {:?}", self.text))
    }
}

fn of(file: Option<&Path>) -> String {
    file.map(|file| format!(" of {}", file.display())).unwrap_or_default()
}

/// Records changes.
#[derive(Clone, Default)]
pub(super) struct Changes(Arc<Mutex<Vec<Change>>>);

impl Changes {
    pub(super) fn take(&self) -> Vec<Change> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(super) fn last_is_accepted(&self) -> bool {
        self.0.lock().unwrap().last().is_some_and(|change| change.outcome == "accepted")
    }
}

impl Observer for Changes {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(change) = other(event, "limits_change") {
            self.0.lock().unwrap().push(Change { outcome: change.outcome(), text: change.to_string() });
        }
    }
}

#[test]
fn every_observer_receives_accepted_and_refused_changes() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let changes = Changes::default();
    let live = LiveLimits::new(only("rate = '10/min'"));
    let limiter = limiter().with_observer(changes.clone()).with_observer(Metrics::new());
    let layer = live.layer(limiter, GlobalKey).unwrap().with_cost(8);
    live.replace(only("rate = '20/min'")).unwrap();
    let error = live.replace(only("rate = '5/min'")).unwrap_err();
    let [accepted, refused] = &changes.take()[..] else { panic!("not two changes") };
    assert_eq!((accepted, refused.refused(None)), (&Change::accepted(None, 2), error.to_string().as_str()));
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
    let live = LiveLimits::new(only("rate = '10/min'"));
    let _layer = live.layer(limiter().with_observer(Tracing::new()), GlobalKey).unwrap();
    live.replace(only("rate = '20/min'")).unwrap();
    let [line] = &log.take()[..] else { panic!("not one line") };
    assert!(line.starts_with("INFO tollgate::limits: New limits are in force (version 2)."), "{line}");
}

/// Logs each change on the thread that reports it, and hands its lines to the test.
struct Logs(mpsc::SyncSender<(&'static str, Vec<String>)>);

impl Observer for Logs {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(change) = other(event, "limits_change") {
            let (log, _guard) = Log::start(Level::INFO);
            Tracing::new().on_event(event);
            self.0.send((change.outcome(), log.take())).unwrap();
        }
    }
}

/// A writer of the file could otherwise add lines to the log, hide lines or colour them.
#[test]
fn an_error_of_a_file_is_one_line_of_the_log_with_its_control_characters_escaped() {
    let text = "[policies.p]\nrate = '60/min'\n[default]\npolicies = ['p']\n";
    let wrong = format!("{text}[default.costs]\n\"q\\n\\u001B[2K\" = 1\n");
    let reason = read(&wrong).unwrap_err().to_string();
    assert_eq!(reason.lines().count(), 1, "a mistake is a line: {reason}");
    let forged =
        |text: &str| read(text).map_err(|error| format!("{error}\nWARN forged: \u{1b}[31mred\rover\u{2028}end"));
    let directory = Directory::new();
    let path = directory.path("limits\nWARN forged.toml");
    fs::write(&path, text).unwrap();
    let (sender, changes) = mpsc::sync_channel(1);
    let live = LiveLimits::watch(&path, forged).unwrap();
    let _layer = live.layer(limiter().without_notices().with_observer(Logs(sender)), GlobalKey).unwrap();
    for outcome in ["refused", "unreadable", "accepted"] {
        match outcome {
            "refused" => fs::write(&path, &wrong).unwrap(),
            "unreadable" => fs::remove_file(&path).unwrap(),
            _ => fs::write(&path, text).unwrap(),
        }
        let (reported, lines) = changes.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!((reported, lines.len()), (outcome, 1), "{lines:?}");
        assert!(!lines[0].contains(char::is_control) && !lines[0].contains('\u{2028}'), "{lines:?}");
        assert!(lines[0].contains(r"/limits\nWARN forged.toml"), "{lines:?}");
        if outcome == "refused" {
            assert!(lines[0].contains(r"\u{1b}[31mred\rover\u{2028}end"), "{lines:?}");
        }
    }
    drop(live);
}

/// Keeps a log of the thread that reports changes, and hands its new lines over with each of them.
struct KeepsLog(OnceLock<Log>, mpsc::SyncSender<Vec<String>>);

impl Observer for KeepsLog {
    fn on_event(&self, event: &Event<'_>) {
        if other(event, "limits_change").is_none() {
            return;
        }
        let log = self.0.get_or_init(|| {
            let (log, guard) = Log::start(Level::WARN);
            // The thread keeps its subscriber.
            std::mem::forget(guard);
            log
        });
        self.1.send(log.take()).unwrap();
    }
}

/// What the limiter reports by itself comes after the observer has the event.
#[test]
fn law_13_a_file_that_is_refused_or_gone_is_a_line_of_the_log_if_no_observer_writes_events() {
    let text = "[policies.p]\nrate = '60/min'\n[default]\npolicies = ['p']\n";
    let (directory, (sender, lines)) = (Directory::new(), mpsc::sync_channel(1));
    let path = directory.path("limits.toml");
    fs::write(&path, text).unwrap();
    let live = LiveLimits::watch(&path, read).unwrap();
    let _layer = live.layer(limiter().with_observer(KeepsLog(OnceLock::new(), sender)), GlobalKey).unwrap();
    let next = || lines.recv_timeout(Duration::from_secs(20)).unwrap();
    // At once, so that no half of a file is read.
    let write = |text: &str| {
        fs::write(directory.path("new.toml"), text).unwrap();
        fs::rename(directory.path("new.toml"), &path).unwrap();
    };
    write("policies.p.rate = 'fast'");
    assert_eq!(next(), [""; 0]);
    fs::remove_file(&path).unwrap();
    assert!(matches!(&next()[..], [line] if line.starts_with("WARN tollgate::limits: New limits of ")));
    write(text);
    assert!(matches!(&next()[..], [line] if line.contains(" cannot be read (")));
    drop(live);
}

/// The errors of a database have several lines too.
#[test]
fn an_error_of_a_source_of_plans_is_one_line_of_the_log() {
    let (log, _guard) = Log::start(Level::INFO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let source = |_: tollgate::Key| async { Err::<tollgate::Policy, _>("syntax error\nWARN forged") };
        let plans = tollgate::plans::Plans::new(source, crate::support::app::per_minute(5)).unwrap();
        let limiter = limiter().with_observer(Tracing::new());
        let _layer = RateLimitLayer::new(limiter, plans.clone(), GlobalKey).validated().unwrap();
        let _ = plans.get("17");
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
