//! The message about a check without a verdict: what happened, what the request got, what to do.

use std::fmt;

use crate::{
    error::{Error, ErrorKind},
    observe::effects::{EffectCounts, FailureEffect},
};

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
    (" DB index", "Correct the number after the last slash of the store's URL."),
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
