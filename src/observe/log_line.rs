//! Lines for operators: `tracing` events, or lines on stderr where no subscriber takes them.

use std::{
    fmt,
    io::{self, Write},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// What a line is about. Each topic is a `tracing` target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Topic {
    Refusal,
    Setup,
    Store,
}

/// Writes one line, as a warning: a `tracing` event where a subscriber takes it, otherwise a line on stderr. A subscriber
/// that filters the event out does not take it. Nothing is written if it is taken and an observer has it `traced`.
pub(super) fn write_line(topic: Topic, text: impl fmt::Display, traced: bool) {
    match is_taken(topic) {
        true if traced => {}
        true => trace(topic, &line(text)),
        false => write(format!("tollgate: {}\n", line(text))),
    }
}

/// An error may quote another program, and a line is to stay one.
fn line(text: impl fmt::Display) -> String {
    text.to_string().replace(|sign: char| sign.is_control(), " ")
}

/// Lines that are being written, beyond which lines are left out: what reads stderr may have come to a stop.
static WRITING: AtomicUsize = AtomicUsize::new(0);
const MOST: usize = 16;
/// How long a request waits for its line: long enough for a stderr that is read.
const PATIENCE: Duration = Duration::from_millis(5);

/// Writes to stderr on a thread of its own, because a pipe that is full would hold up the request.
fn write(line: String) {
    if WRITING.fetch_add(1, Ordering::Relaxed) >= MOST {
        WRITING.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (done, written) = mpsc::channel();
    let write = move || {
        // There is nothing to be done about a stderr that is closed, or about a request that has gone on.
        let _ = io::stderr().write_all(line.as_bytes());
        WRITING.fetch_sub(1, Ordering::Relaxed);
        let _ = done.send(());
    };
    match thread::Builder::new().name("tollgate-stderr".to_owned()).spawn(write) {
        Ok(_) => drop(written.recv_timeout(PATIENCE)),
        Err(_) => drop(WRITING.fetch_sub(1, Ordering::Relaxed)),
    }
}

#[cfg(feature = "tracing")]
fn is_taken(topic: Topic) -> bool {
    use tracing::{Level, enabled};

    match topic {
        Topic::Refusal => enabled!(target: "tollgate::refusal", Level::WARN),
        Topic::Setup => enabled!(target: "tollgate::setup", Level::WARN),
        Topic::Store => enabled!(target: "tollgate::store", Level::WARN),
    }
}

#[cfg(feature = "tracing")]
fn trace(topic: Topic, line: &str) {
    use tracing::warn;

    match topic {
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
