//! The error of a check that got no verdict, and its kinds.

use std::{error, fmt};

use crate::error::ConfigError;

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
///     Err(error) if error.may_have_charged() => {
///         println!("the check may have been charged: {error}")
///     }
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
    /// let error = Error::new(ErrorKind::Unavailable, "connection reset by peer")
    ///     .charge_unknown();
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

/// The kinds of [`Error`].
///
/// | kind | cause | who can correct it | may have charged | the caller |
/// | --- | --- | --- | --- | --- |
/// | [`Unavailable`](Self::Unavailable) | the store is down, restarting, full, or the breaker is open | operator | if the check was sent | follows the failure policy; a retry within a second rarely helps |
/// | [`Deadline`](Self::Deadline) | no reply within the deadline | operator | yes, if the check was sent | follows the failure policy; a retry may charge twice |
/// | [`Overloaded`](Self::Overloaded) | this process sends more checks than the store answers in time | operator: a faster store, a cluster, fewer requests | yes, if the check was sent | refuses, sheds load |
/// | [`StoreMisconfigured`](Self::StoreMisconfigured) | wrong credentials, missing permissions, an unusable script | operator | if the check was sent | follows the failure policy until the setup is corrected |
/// | [`BadKey`](Self::BadKey) | the key holds a value that no limiter has written: another program's, or a damaged one | operator: reset the key, or another key prefix | no | follows the failure policy; other keys are unaffected |
/// | [`InvalidCall`](Self::InvalidCall) | the check itself is wrong, see [`ConfigError`] | developer | no | refuses, and corrects the call |
///
/// Where the table says "if", [`Error::may_have_charged`] says whether this one check
/// may have been charged. No error is worth an immediate retry: tollgate itself never sends a check again whose fate is
/// unknown.
///
/// # Examples
///
/// ```
/// use tollgate::{Error, ErrorKind};
///
/// /// Whether an operator has to correct the setup before the next check.
/// fn needs_operator(error: &Error) -> bool {
///     matches!(error.kind(), ErrorKind::StoreMisconfigured | ErrorKind::BadKey)
/// }
///
/// assert!(needs_operator(&Error::new(
///     ErrorKind::StoreMisconfigured,
///     "WRONGPASS"
/// )));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key holds a value that no limiter has written. Only checks of this key are affected.
    BadKey,
    /// The check itself is wrong, see [`ConfigError`].
    ///
    /// Every failure policy refuses such a request: no outage has caused the error, so it would lift the limit for as
    /// long as the program runs.
    InvalidCall,
    /// The store did not answer within the deadline. Counts for the [breaker](crate::failure::BreakerSettings).
    Deadline,
    /// The store answers but cannot be used: wrong credentials, missing permissions, an unusable script.
    StoreMisconfigured,
    /// The store answers, but this process has sent it more checks than it answers within the deadline.
    ///
    /// Every failure policy refuses such a request: a flood must not lift the limit that it exceeds. Does not count
    /// for the [breaker](crate::failure::BreakerSettings). The check may have been sent and charged, see
    /// [`Error::may_have_charged`].
    Overloaded,
    /// The store cannot be reached, cannot serve right now, or was not asked because the
    /// [breaker](crate::failure::BreakerSettings) is open. Counts for the breaker if the store was asked.
    Unavailable,
}

impl ErrorKind {
    /// Whether the failure policy decides about a check with such an error. If not, every failure policy refuses the
    /// check: the store is not away, and to let the check pass would be to have no limit.
    pub(crate) fn follows_failure_policy(self) -> bool {
        match self {
            Self::BadKey | Self::Deadline | Self::StoreMisconfigured | Self::Unavailable => true,
            Self::InvalidCall | Self::Overloaded => false,
        }
    }

    /// The failure in a few words, with which the message of an error begins.
    pub(crate) fn summary(self) -> &'static str {
        match self {
            Self::BadKey => "the key holds a value that no limiter has written",
            Self::InvalidCall => "the check is misconfigured",
            Self::Deadline => "the store did not answer in time",
            Self::StoreMisconfigured => "the store is misconfigured",
            Self::Overloaded => "too many checks wait for the store",
            Self::Unavailable => "the store is unavailable",
        }
    }
}
