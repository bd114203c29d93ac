//! What can go wrong: in a configuration ([`ConfigError`]) and in a check ([`Error`]).

mod config;

use std::{error, fmt};

pub use self::config::ConfigError;

/// A check that got no verdict.
///
/// Whether it was charged is told by [`Error::may_have_charged`]; it is never sent again. A
/// [`FailurePolicy`](crate::FailurePolicy) turns it into a [`Decision`](crate::Decision).
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    may_have_charged: bool,
    store: Told,
}

/// What an error tells about the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Told {
    /// What its kind does.
    Kind,
    /// It has answered, and can serve other checks.
    #[cfg(feature = "redis")]
    Answered,
    /// What its kind does. It was still being dialled.
    #[cfg(feature = "redis")]
    Late,
    /// It was not asked.
    Unasked,
    /// It was not asked although it is well.
    Caution,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key holds something that is not a limiter's. This check alone is affected.
    BadKey,
    /// The check itself is wrong, see [`ConfigError`].
    Config,
    /// The store did not answer within the deadline. Counts for the [`Breaker`](crate::failure::Breaker).
    Deadline,
    /// The store answers, but not to us: wrong credentials, missing permissions, an unusable script.
    Misconfigured,
    /// The store answers, but this process has sent it more checks than it answers within the deadline.
    ///
    /// No failure policy lets such a request pass: a flood must not lift the limit that it runs into. The
    /// [`Breaker`](crate::failure::Breaker) is not told. The check may have been sent, and charged:
    /// [`Error::may_have_charged`].
    Overloaded,
    /// The store cannot be reached or cannot serve right now, or the [`Breaker`](crate::failure::Breaker) is open and it
    /// was not asked. Counts for the breaker if it was asked.
    Unavailable,
}

impl Error {
    /// Creates an error, for implementations of [`Store`](crate::store::Store).
    ///
    /// The message is for operators; it is never sent to a client and must not hold a key.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), may_have_charged: false, store: Told::Kind }
    }

    /// Says that the fate of the check is unknown: it may have been charged.
    #[must_use]
    pub fn charge_unknown(mut self) -> Self {
        self.may_have_charged = true;
        self
    }

    /// Says what this tells about the store.
    pub(crate) fn telling(mut self, store: Told) -> Self {
        self.store = store;
        self
    }

    pub(crate) fn store(&self) -> Told {
        self.store
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether an answer may still have come after this.
    #[cfg(feature = "redis")]
    pub(crate) fn is_late(&self) -> bool {
        self.store == Told::Late || self.kind == ErrorKind::Deadline
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Whether the check may have been charged although no verdict came back.
    pub fn may_have_charged(&self) -> bool {
        self.may_have_charged
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ErrorKind::BadKey => "the key is in use for something else",
            ErrorKind::Config => "the check is misconfigured",
            ErrorKind::Deadline => "the store did not answer in time",
            ErrorKind::Misconfigured => "the store is misconfigured",
            ErrorKind::Overloaded => "too many checks wait for the store",
            ErrorKind::Unavailable => "the store is unavailable",
        };
        write!(f, "{what}: {}", self.message)
    }
}

impl error::Error for Error {}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::new(ErrorKind::Config, error.to_string())
    }
}
