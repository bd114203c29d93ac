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

/// Writes one line, as a warning.
pub(super) fn say(topic: Topic, text: impl fmt::Display) {
    // An error may quote another program, and a line is to stay one.
    let line = text.to_string().replace(|sign: char| sign.is_control(), " ");
    if !trace(topic, &line) {
        // There is nothing to be done about a stderr that is closed.
        let _ = writeln!(io::stderr(), "tollgate: {line}");
    }
}

/// Whether there was a subscriber to hand the line to.
#[cfg(feature = "tracing")]
fn trace(topic: Topic, line: &str) -> bool {
    use tracing::{dispatcher::get_default, subscriber::NoSubscriber, warn};

    if get_default(|subscriber| subscriber.is::<NoSubscriber>()) {
        return false;
    }
    match topic {
        Topic::Refusal => warn!(target: "tollgate::refusal", "{line}"),
        Topic::Setup => warn!(target: "tollgate::setup", "{line}"),
        Topic::Store => warn!(target: "tollgate::store", "{line}"),
    }
    true
}

#[cfg(not(feature = "tracing"))]
fn trace(_: Topic, _: &str) -> bool {
    false
}
