//! The error of a check that got no verdict.

use std::{error, fmt};

use crate::error::{config::ConfigError, kind::ErrorKind};

/// A check that got no verdict.
///
/// [`kind`](Self::kind) is the cause. [`may_have_charged`](Self::may_have_charged) says whether the check may have been
/// charged without a verdict; such a check is never sent again. A [`FailurePolicy`](crate::FailurePolicy) turns the
/// error into a [`Decision`](crate::Decision).
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = MemoryStore::new();
/// let limiter = Limiter::new(store);
/// let emails = Policy::per_minute("emails", 10)?;
/// match limiter.check("user:17", &emails, 1).await {
///     Ok(decision) => println!("allowed: {}", decision.is_allowed()),
///     Err(error) if error.may_have_charged() => println!("the check may have been charged: {error}"),
///     Err(error) => println!("the check was not charged: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    may_have_charged: bool,
    evidence: StoreEvidence,
}

/// What an error says about the state of the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StoreEvidence {
    /// What the error's kind implies.
    FromKind,
    /// The store answered this check with an error, and can serve other checks.
    #[cfg(feature = "redis")]
    Answered,
    /// The store may only be late: the connection was still being dialled. Otherwise as `FromKind`.
    #[cfg(feature = "redis")]
    Late,
    /// No evidence: the check was not sent, because the breaker is open.
    NotSent,
    /// No evidence: the call has a mistake, which was found without the store.
    Mistake,
    /// No evidence: the check was held back during recovery; the store itself is healthy.
    HeldBack,
}

impl Error {
    /// Creates an error, for implementations of [`Store`](crate::store::Store).
    ///
    /// The message is for operators. It is never sent to a client and must not contain a key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Unavailable, "connection refused");
    /// assert_eq!(error.to_string(), "the store is unavailable: connection refused");
    /// ```
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), may_have_charged: false, evidence: StoreEvidence::FromKind }
    }

    /// Marks the fate of the check as unknown: it may have been charged.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Unavailable, "connection reset by peer").charge_unknown();
    /// assert!(error.may_have_charged());
    /// ```
    #[must_use]
    pub fn charge_unknown(mut self) -> Self {
        self.may_have_charged = true;
        self
    }

    /// Adds what the error is about to its message.
    pub(crate) fn about(mut self, subject: &str) -> Self {
        self.message = format!("{} ({subject})", self.message.trim_end_matches('.'));
        self
    }

    /// Sets what the error says about the store.
    pub(crate) fn with_evidence(mut self, evidence: StoreEvidence) -> Self {
        self.evidence = evidence;
        self
    }

    pub(crate) fn evidence(&self) -> StoreEvidence {
        self.evidence
    }

    /// The mistake in the program, if the error is one. Its message has no text of the store, so clients may see it.
    pub(crate) fn mistake(&self) -> Option<ConfigError> {
        (self.evidence == StoreEvidence::Mistake).then(|| ConfigError::new(self.message.clone()))
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the store may only be late: its answer may follow after this error.
    pub(crate) fn is_late(&self) -> bool {
        #[cfg(feature = "redis")]
        if self.evidence == StoreEvidence::Late {
            return true;
        }
        self.kind == ErrorKind::Deadline
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Whether the check may have been charged although no verdict arrived.
    pub fn may_have_charged(&self) -> bool {
        self.may_have_charged
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.summary(), self.message)
    }
}

/// The message, the kind, and whether the check may have been charged: a `main` that returns the error prints its
/// `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let charge = if self.may_have_charged { "may have been charged" } else { "was not charged" };
        write!(f, "{self} ({:?}; the check {charge})", self.kind)
    }
}

impl error::Error for Error {}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::new(ErrorKind::InvalidCall, error.to_string()).with_evidence(StoreEvidence::Mistake)
    }
}
