//! Lines for operators: `tracing` events, or lines on stderr if no subscriber takes them.

use std::{
    fmt,
    io::{self, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// The subject of a line. Each topic has a `tracing` target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Topic {
    Limits,
    Plans,
    Refusal,
    Setup,
    Store,
}

/// Writes one warning: a `tracing` event if a subscriber takes it, otherwise a line on stderr. A subscriber that
/// filters the event out does not take it. Writes nothing if a subscriber takes the event and an observer has already
/// `traced` it.
///
/// A panic of the subscriber is contained, because a line must not change the request that causes it.
pub(super) fn write_line(topic: Topic, text: impl fmt::Display, traced: bool) {
    let write = || match is_taken(topic) {
        true if traced => {}
        true => trace(topic, &one_line(text)),
        false => write(format!("tollgate: {}\n", one_line(text))),
    };
    drop(catch_unwind(AssertUnwindSafe(write)));
}

/// Replaces control characters: an error may quote another program, and a line must stay one line.
fn one_line(text: impl fmt::Display) -> String {
    text.to_string().replace(|sign: char| sign.is_control(), " ")
}

/// Number of lines that are being written.
static WRITING: AtomicUsize = AtomicUsize::new(0);
/// Largest number of lines that are being written. Further lines are dropped, because the reader of stderr may have
/// stopped.
const MAX_WRITING: usize = 16;
/// How long a request waits until its line is written: long enough if stderr is read.
const MAX_WAIT: Duration = Duration::from_millis(5);

/// Writes to stderr on a separate thread, because a full pipe would block the request.
fn write(line: String) {
    if WRITING.fetch_add(1, Ordering::Relaxed) >= MAX_WRITING {
        WRITING.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (done, written) = mpsc::channel();
    let write = move || {
        // Errors are ignored: stderr may be closed, and the request may have gone on.
        let _ = io::stderr().write_all(line.as_bytes());
        WRITING.fetch_sub(1, Ordering::Relaxed);
        let _ = done.send(());
    };
    match thread::Builder::new().name("tollgate-stderr".to_owned()).spawn(write) {
        Ok(_) => drop(written.recv_timeout(MAX_WAIT)),
        Err(_) => drop(WRITING.fetch_sub(1, Ordering::Relaxed)),
    }
}

#[cfg(feature = "tracing")]
fn is_taken(topic: Topic) -> bool {
    use tracing::{Level, enabled};

    match topic {
        Topic::Limits => enabled!(target: "tollgate::limits", Level::WARN),
        Topic::Plans => enabled!(target: "tollgate::plans", Level::WARN),
        Topic::Refusal => enabled!(target: "tollgate::refusal", Level::WARN),
        Topic::Setup => enabled!(target: "tollgate::setup", Level::WARN),
        Topic::Store => enabled!(target: "tollgate::store", Level::WARN),
    }
}

#[cfg(feature = "tracing")]
fn trace(topic: Topic, line: &str) {
    use tracing::warn;

    match topic {
        Topic::Limits => warn!(target: "tollgate::limits", "{line}"),
        Topic::Plans => warn!(target: "tollgate::plans", "{line}"),
        Topic::Refusal => warn!(target: "tollgate::refusal", "{line}"),
        Topic::Setup => warn!(target: "tollgate::setup", "{line}"),
        Topic::Store => warn!(target: "tollgate::store", "{line}"),
    }
}

#[cfg(not(feature = "tracing"))]
fn is_taken(_: Topic) -> bool {
    false
}

#[cfg(not(feature = "tracing"))]
fn trace(_: Topic, _: &str) {}
