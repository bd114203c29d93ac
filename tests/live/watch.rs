//! Limits that follow a file. The tests wait for the thread that watches, because files have no manual clock.

use std::io::{self, Write};
use std::time::{Duration, Instant};
use std::{error::Error, fs, os::unix::fs::symlink, path::Path, process::Command, sync::mpsc, thread};

use tollgate::{GlobalKey, Limiter, LiveLimits, limits::LimitsFileError, observe::Event};

use super::events::{Change, Changes};
use super::files::{Directory, read};
use crate::support::app::{app, limiter};
use crate::support::{http::get, observed::other};

fn text(limit: u64) -> String {
    format!("[policies.p]\nrate = '{limit}/min'\n[default]\npolicies = ['p']\n")
}

/// A file with the limit 10 in a directory of its own, and limits that follow it.
fn watched() -> (Directory, std::path::PathBuf, LiveLimits, Changes) {
    let directory = Directory::new();
    let path = directory.path("limits.toml");
    fs::write(&path, text(10)).unwrap();
    let changes = Changes::default();
    let live = LiveLimits::watch(&path, read).unwrap();
    drop(live.layer(observed(&changes), GlobalKey).unwrap());
    (directory, path, live, changes)
}

/// A limiter that reports to `changes` alone.
fn observed(changes: &Changes) -> Limiter {
    limiter().without_notices().with_observer(changes.clone())
}

fn limit(live: &LiveLimits) -> u64 {
    live.policy("p").unwrap().limit()
}

/// Waits until `reached`. Changes are promised within a second; the bound is that of a machine under load.
#[track_caller]
fn until(what: &str, reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < Duration::from_secs(20), "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the next change.
#[track_caller]
fn next(changes: &Changes) -> Change {
    let start = Instant::now();
    loop {
        if let Some(change) = changes.take().pop() {
            return change;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "timed out waiting for a change");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Time in which a watching thread reads a file at least once, and judges it.
const A_READ: Duration = Duration::from_millis(700);

#[tokio::test]
async fn layers_follow_a_file_that_is_written_or_replaced() {
    let (directory, path, live, changes) = watched();
    let app = app(live.layer(observed(&changes), GlobalKey).unwrap());
    fs::write(&path, text(20)).unwrap();
    assert_eq!(next(&changes), Change::accepted(Some(&path), 2));
    assert_eq!(get(&app, "/").await.header("ratelimit-policy").as_deref(), Some(r#""p";q=20;w=60"#));
    fs::write(directory.path("limits.toml~"), text(30)).unwrap();
    fs::rename(directory.path("limits.toml~"), &path).unwrap();
    assert_eq!(next(&changes), Change::accepted(Some(&path), 3));
    assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=28;t=60"#));
}

#[test]
fn a_refused_file_is_reported_once_with_all_mistakes_and_the_old_limits_stay() {
    let (_directory, path, live, changes) = watched();
    fs::write(&path, "[policies.p]\nrate = 'fast'\n[default]\npolicies = ['p', 'q']\n").unwrap();
    let change = next(&changes);
    let reason = change.refused(Some(&path));
    assert!(reason.contains("policies.p.rate") && reason.contains("default.policies"), "{reason}");
    // Waits for further reads, which must not repeat the report.
    thread::sleep(A_READ);
    assert_eq!((changes.take(), limit(&live)), (vec![], 10));
    fs::write(&path, text(20)).unwrap();
    assert_eq!(next(&changes), Change::accepted(Some(&path), 2));
    assert_eq!(limit(&live), 20);
}

#[test]
fn a_file_that_does_not_fit_a_layer_is_refused() {
    let (_directory, path, live, changes) = watched();
    let layer = live.layer(observed(&changes), GlobalKey).unwrap().with_cost(8);
    fs::write(&path, text(5)).unwrap();
    let change = next(&changes);
    let reason = change.refused(Some(&path));
    assert!(reason.contains("a cost of 8"), "{reason}");
    assert_eq!(limit(&live), 10);
    drop(layer);
}

#[test]
fn a_file_that_is_removed_is_reported_and_read_again_when_it_is_back() {
    let (_directory, path, live, changes) = watched();
    fs::remove_file(&path).unwrap();
    let change = next(&changes);
    let reason = change.unreadable(&path);
    assert_eq!(limit(&live), 10);
    assert!(reason.contains("No such file"), "{reason}");
    thread::sleep(A_READ);
    assert_eq!(changes.take(), [], "reported once");
    // The same content as before: the report that the limits are followed again.
    fs::write(&path, text(10)).unwrap();
    assert_eq!(next(&changes), Change::accepted(Some(&path), 2));
}

/// Kubernetes mounts a ConfigMap as links to a directory `..data`, which is itself a link that an update replaces.
#[test]
fn a_config_map_that_is_swapped_is_read_again() {
    let directory = Directory::new();
    let generation = |name: &str, limit: u64| {
        fs::create_dir(directory.path(name)).unwrap();
        fs::write(directory.path(name).join("limits.toml"), text(limit)).unwrap();
    };
    generation("..1", 10);
    symlink("..1", directory.path("..data")).unwrap();
    symlink("..data/limits.toml", directory.path("limits.toml")).unwrap();
    let live = LiveLimits::watch(directory.path("limits.toml"), read).unwrap();
    assert_eq!(limit(&live), 10);
    for (number, limit_now) in [(2, 20), (3, 30)] {
        let name = format!("..{number}");
        generation(&name, limit_now);
        symlink(&name, directory.path("..data_tmp")).unwrap();
        fs::rename(directory.path("..data_tmp"), directory.path("..data")).unwrap();
        fs::remove_dir_all(directory.path(&format!("..{}", number - 1))).unwrap();
        until("the new ConfigMap is in force", || limit(&live) == limit_now);
    }
}

/// The directory that is watched does not change, so no event arrives.
#[test]
fn a_change_without_an_event_is_found() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    fs::write(elsewhere.path("limits.toml"), text(10)).unwrap();
    symlink(elsewhere.path("limits.toml"), directory.path("limits.toml")).unwrap();
    let live = LiveLimits::watch(directory.path("limits.toml"), read).unwrap();
    fs::write(elsewhere.path("limits.toml"), text(20)).unwrap();
    until("the target of the link is in force", || limit(&live) == 20);
}

/// A part of a file is refused here, and might be accepted elsewhere. Content that stays for 50 ms is taken for whole,
/// so only rounds count in which the writer was never away for so long.
#[test]
fn a_file_that_is_being_written_is_not_read_in_part() {
    let (_directory, path, live, changes) = watched();
    let mut whole_rounds = 0;
    for round in 0..100 {
        let limit = 1_000 + round;
        let content = text(limit);
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        // The file only grows. One that is emptied for each part could be found empty twice.
        let mut file = fs::File::create(&path).unwrap();
        for part in content.as_bytes().chunks(7) {
            file.write_all(part).unwrap();
            longest = longest.max(last.elapsed());
            last = Instant::now();
            thread::sleep(Duration::from_millis(4));
        }
        until("the whole file is in force", || self::limit(&live) == limit);
        until("the change is reported", || changes.last_is_accepted());
        let outcomes: Vec<_> = changes.take().iter().map(|change| change.outcome).collect();
        if longest < Duration::from_millis(45) {
            assert_eq!(outcomes, ["accepted"]);
            whole_rounds += 1;
        }
        if whole_rounds == 3 {
            return;
        }
    }
    panic!("the writer was too slow in each round");
}

#[test]
fn a_parser_or_an_observer_that_panics_does_not_end_the_watching() {
    struct Panics;
    impl tollgate::observe::Observer for Panics {
        fn on_event(&self, event: &Event<'_>) {
            let Some(change) = other(event, "limits_change") else { return };
            assert_eq!(change.outcome(), "unreadable", "this panic is part of the test");
        }
    }
    let directory = Directory::new();
    let path = directory.path("limits.toml");
    fs::write(&path, text(10)).unwrap();
    let parse = |text: &str| {
        assert!(!text.contains("panic"), "this panic is part of the test");
        read(text)
    };
    let changes = Changes::default();
    let live = LiveLimits::watch(&path, parse).unwrap();
    drop(live.layer(observed(&changes).with_observer(Panics), GlobalKey).unwrap());
    fs::write(&path, "panic").unwrap();
    let change = next(&changes);
    let reason = change.refused(Some(&path));
    assert!(reason.contains("panicked"), "{reason}");
    fs::write(&path, text(20)).unwrap();
    assert_eq!(next(&changes), Change::accepted(Some(&path), 2));
    assert_eq!(limit(&live), 20);
}

#[test]
fn a_file_that_is_wrong_at_the_start_is_an_error_with_its_path() {
    let directory = Directory::new();
    let path = directory.path("limits.toml");
    let watch = |path: &Path| LiveLimits::watch(path, read).unwrap_err();
    let missing = watch(&path);
    let kind =
        |error: &LimitsFileError| error.source().and_then(|error| Some(error.downcast_ref::<io::Error>()?.kind()));
    assert_eq!(kind(&missing), Some(io::ErrorKind::NotFound));
    let not_a_file = watch(&directory.path("."));
    assert!(not_a_file.to_string().contains("it is a directory and not a regular file; write"), "{not_a_file}");
    fs::write(&path, "policies.p.rate = 'fast'").unwrap();
    let refused = watch(&path).to_string();
    assert!(refused.contains(path.to_str().unwrap()) && refused.contains("policies.p.rate"), "{refused}");
    fs::write(&path, [0xff]).unwrap();
    assert_eq!(kind(&watch(&path)), Some(io::ErrorKind::InvalidData));
    fs::write(&path, " ".repeat(16 << 20)).unwrap();
    assert!(LiveLimits::watch(&path, |_| read(&text(10))).is_ok());
    fs::write(&path, " ".repeat((16 << 20) + 1)).unwrap();
    assert!(watch(&path).to_string().contains("it is larger than 16 MiB"));
}

/// An open of a pipe waits for a writer. The other thread bounds the wait of this test.
#[test]
fn a_pipe_is_an_error_without_a_wait() {
    let directory = Directory::new();
    let pipe = directory.path("limits.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (sender, result) = mpsc::channel();
    thread::spawn(move || sender.send(LiveLimits::watch(pipe, read).map(drop)));
    let error = result.recv_timeout(Duration::from_secs(20)).expect("an answer").unwrap_err();
    assert!(error.to_string().contains("it is a pipe and not a regular file; write"), "{error}");
}

/// A pipe, a device and a directory, each put in the place of the file for a while.
#[test]
fn what_is_no_file_is_reported_with_a_remedy_and_a_later_file_is_taken() {
    let (directory, path, live, changes) = watched();
    let stand_in = directory.path("stand-in");
    for (number, kind) in ["a pipe", "a device", "a directory"].into_iter().enumerate() {
        match kind {
            "a pipe" => assert!(Command::new("mkfifo").arg(&stand_in).status().unwrap().success()),
            "a device" => symlink("/dev/zero", &stand_in).unwrap(),
            _ => fs::create_dir(&stand_in).unwrap(),
        }
        fs::rename(&path, directory.path("last")).unwrap();
        fs::rename(&stand_in, &path).unwrap();
        // For an instant there was no file.
        let reason = loop {
            let reason = next(&changes).unreadable(&path).to_owned();
            if !reason.contains("No such file") {
                break reason;
            }
        };
        assert!(reason.starts_with(&format!("it is {kind} and not a regular file; write the limits to")), "{reason}");
        let limit_now = limit(&live);
        assert_eq!(limit_now, if number == 0 { 10 } else { u64::try_from(number).unwrap() * 100 }, "{kind}");
        fs::rename(&path, directory.path(&format!("old-{number}"))).unwrap();
        let limit_then = (u64::try_from(number).unwrap() + 1) * 100;
        fs::write(&path, text(limit_then)).unwrap();
        until("the file is in force", || limit(&live) == limit_then);
        until("the change is reported", || changes.last_is_accepted());
        changes.take();
    }
}

/// The pipe and the file change places every few microseconds, so that the path leads to a file when it is looked at,
/// and to a pipe when it is opened.
#[test]
fn a_pipe_that_is_swapped_in_at_any_instant_does_not_stop_the_watching() {
    let (directory, path, live, _) = watched();
    let (pipe, file) = (directory.path("pipe"), directory.path("file"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(&file, text(20)).unwrap();
    let links: Vec<_> = (0..1_000).map(|number| directory.path(&format!("{number}"))).collect();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        for (number, link) in links.iter().enumerate() {
            fs::hard_link([&pipe, &file][number % 2], link).unwrap();
        }
        links.iter().for_each(|link| fs::rename(link, &path).unwrap());
    }
    until("the file is in force, which was there last", || limit(&live) == 20);
}

/// The parser is dropped with the thread.
#[test]
fn the_thread_ends_with_the_last_layer() {
    let (_directory, path, live, _) = watched();
    let witness = std::sync::Arc::new(());
    let held = std::sync::Arc::clone(&witness);
    let parse = move |text: &str| {
        let _ = &held;
        read(text)
    };
    drop(live);
    let live = LiveLimits::watch(&path, parse).unwrap();
    let layer = live.layer(limiter(), GlobalKey).unwrap();
    drop(live);
    thread::sleep(A_READ);
    assert_eq!(std::sync::Arc::strong_count(&witness), 2, "the layer keeps the thread alive");
    drop(layer);
    until("the thread has ended", || std::sync::Arc::strong_count(&witness) == 1);
}

#[test]
fn law_6_the_reason_of_a_refused_file_is_short_whatever_the_file_contains() {
    let (_directory, path, live, changes) = watched();
    fs::write(&path, vec![0; 4_000_000]).unwrap();
    let change = next(&changes);
    let reason = change.refused(Some(&path));
    assert!(reason.len() < 10_000 && reason.contains("line 1"), "{} bytes", reason.len());
    let error = LiveLimits::watch(&path, read).map(drop).unwrap_err();
    assert!(error.to_string().len() < 20_000, "{} bytes", error.to_string().len());
    assert_eq!(limit(&live), 10);
}
