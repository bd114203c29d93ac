//! Lines for operators: `tracing` events, or lines on stderr if no subscriber takes them. The line about a check
//! without a verdict says what happened, what the request got, and what to do.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fmt, sync::mpsc, thread, time::Duration};

use crate::error::{Error, ErrorKind};
use crate::observe::effects::{EffectCounts, FailureEffect};

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

/// The message about a check without a verdict, for logs.
pub(crate) struct FailureMessage<'a> {
    cause: &'a Error,
    /// What checks got. A line about an outage names each effect, because the failure policy belongs to a route.
    effects: EffectCounts,
}

/// Remedies for causes that contain a certain word. They take precedence over the remedy for the kind of error.
const REMEDIES: &[(&str, &str)] = &[
    // The cause with one of these words contains its remedy.
    ("enable_all()", ""),
    ("cluster-preferred-endpoint-type", ""),
    ("announce-hostnames", ""),
    ("write redis:// ", ""),
    ("write rediss:// ", ""),
    ("(unixsocketperm)", ""),
    ("choose a shorter path", ""),
    (
        "certificate is not valid for the name",
        "Use a host of the certificate in the store's URL, or renew the certificate.",
    ),
    ("certificate has expired", "Renew the certificate, or correct the clock of this machine."),
    ("certificate is valid from", "Correct the clock of this machine, or replace the certificate."),
    ("an authority that is not trusted", "Set the authority with `RedisStoreBuilder::root_certificates`."),
    ("invalid peer certificate", "Replace the server's certificate."),
    ("CertificateRequired", "Set a certificate with `RedisStoreBuilder::client_certificate`."),
    (
        " alert: ",
        "Set a certificate that the server accepts with `RedisStoreBuilder::client_certificate`, or read its log.",
    ),
    (" DB index", "Correct the number of the database in the store's URL."),
    (" NOAUTH ", "Write the login into the store's URL: redis://user:password@host."),
    (" NOPERM ", "Grant the user what the docs of `RedisStore` list as the least ACL."),
    (" OOM ", "Raise the server's maxmemory, or give the limiter a separate server."),
    (" WRONGPASS ", "Correct the login in the store's URL."),
];

impl<'a> FailureMessage<'a> {
    pub(super) fn new(error: &'a Error, effects: impl Into<EffectCounts>) -> Self {
        Self { cause: error, effects: effects.into() }
    }

    fn remedy(&self, cause: &str) -> &'static str {
        if let Some((_, remedy)) = REMEDIES.iter().find(|(word, _)| cause.contains(word)) {
            return remedy;
        }
        match self.cause.kind() {
            ErrorKind::BadKey => {
                "Reset this key (cargo run --release -p tollgate-inspect -- --help), or delete its value. If another \
                 program writes it, set another key prefix."
            }
            ErrorKind::InvalidCall => "Correct the call that the error names.",
            ErrorKind::Deadline => "Check that the store is not slow or frozen, and the network to it.",
            ErrorKind::StoreMisconfigured => "Check the store's address, its login and its permissions.",
            ErrorKind::Overloaded => {
                "This process sends more checks than the store answers in time: use a faster store, or a cluster."
            }
            ErrorKind::Unavailable => "Check that the store runs, can be reached from here and takes writes.",
        }
    }
}

impl fmt::Display for FailureMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages of Redis end with or without a full stop.
        let cause = self.cause.to_string();
        let cause = cause.trim_end_matches('.');
        match (self.cause.kind(), self.effects.only()) {
            (ErrorKind::Overloaded, Some(effect @ FailureEffect::Shadow)) => {
                write!(f, "Limits are not counted: {cause}. {}", effect.sentence())?
            }
            // Every failure policy refuses such a check.
            (kind, Some(FailureEffect::Error)) if !kind.follows_failure_policy() => {
                write!(f, "Checks get no verdict: {cause}.")?
            }
            (kind, _) if !kind.follows_failure_policy() => write!(f, "Requests are refused with 503: {cause}.")?,
            (_, Some(effect)) => write!(f, "Limits are not enforced: {cause}. {}", effect.sentence())?,
            (_, None) => write!(f, "Limits are not enforced: {cause}. Checks so far: {}.", self.effects)?,
        }
        match self.remedy(cause) {
            "" => Ok(()),
            remedy => write!(f, " {remedy}"),
        }
    }
}
