//! The kinds of errors of a check.

/// The kinds of [`Error`](crate::Error).
///
/// | kind | cause | who can correct it | may have charged | the caller |
/// | --- | --- | --- | --- | --- |
/// | [`Unavailable`](Self::Unavailable) | the store is down, restarting, full, or the breaker is open | operator | if the check was sent | follows the failure policy; a retry within a second rarely helps |
/// | [`Deadline`](Self::Deadline) | no reply within the deadline | operator | yes, if the check was sent | follows the failure policy; a retry may charge twice |
/// | [`Overloaded`](Self::Overloaded) | this process sends more checks than the store answers in time | operator: a faster store, a cluster, fewer requests | yes, if the check was sent | refuses, sheds load |
/// | [`StoreMisconfigured`](Self::StoreMisconfigured) | wrong credentials, missing permissions, an unusable script | operator | if the check was sent | follows the failure policy until the setup is corrected |
/// | [`BadKey`](Self::BadKey) | the key holds a value that no limiter has written: another program's, or a damaged one | operator: reset the key, or another key prefix | no | follows the failure policy; other keys are unaffected |
/// | [`InvalidCall`](Self::InvalidCall) | the check itself is wrong, see [`ConfigError`](crate::ConfigError) | developer | no | refuses, and corrects the call |
///
/// Where the table says "if", [`Error::may_have_charged`](crate::Error::may_have_charged) says whether this one check
/// may have been charged. No error is worth an immediate retry: tollgate itself never sends a check again whose fate is
/// unknown.
///
/// # Examples
///
/// ```
/// use tollgate::{Error, ErrorKind};
///
/// /// Whether an operator has to correct the setup before the next check can succeed.
/// fn needs_operator(error: &Error) -> bool {
///     matches!(error.kind(), ErrorKind::StoreMisconfigured | ErrorKind::BadKey)
/// }
///
/// assert!(needs_operator(&Error::new(ErrorKind::StoreMisconfigured, "WRONGPASS")));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key holds a value that no limiter has written. Only checks of this key are affected.
    BadKey,
    /// The check itself is wrong, see [`ConfigError`](crate::ConfigError).
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
    /// [`Error::may_have_charged`](crate::Error::may_have_charged).
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
