//! Lines for operators: `tracing` events, or lines on stderr where no subscriber would get them.

use std::{
    fmt,
    io::{self, Write},
};

/// What a line is about. Each topic is a `tracing` target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Topic {
    Refusal,
    Setup,
    Store,
}

/// Writes one line, as a warning. Nothing is written if a subscriber listens and an observer has it `traced`.
pub(super) fn say(topic: Topic, text: impl fmt::Display, traced: bool) {
    match has_subscriber() {
        true if traced => {}
        true => trace(topic, &line(text)),
        // There is nothing to be done about a stderr that is closed.
        false => drop(writeln!(io::stderr(), "tollgate: {}", line(text))),
    }
}

/// An error may quote another program, and a line is to stay one.
fn line(text: impl fmt::Display) -> String {
    text.to_string().replace(|sign: char| sign.is_control(), " ")
}

#[cfg(feature = "tracing")]
fn has_subscriber() -> bool {
    use tracing::{dispatcher::get_default, subscriber::NoSubscriber};

    !get_default(|subscriber| subscriber.is::<NoSubscriber>())
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
fn has_subscriber() -> bool {
    false
}

#[cfg(not(feature = "tracing"))]
fn trace(_: Topic, _: &str) {}
