//! The failure policy: turning "no verdict" into a decision.

use crate::{
    decision::Decision,
    error::{Error, ErrorKind},
    verdict::Source,
};

/// What happens to a request when the store cannot answer.
///
/// The default is [`Open`](Self::Open): a limiter that is out of order should not take the service down with it. Where
/// an unlimited request does more harm than a refused one (logins, anything that spends money or a metered upstream
/// quota), choose [`Closed`](Self::Closed) or [`Local`](Self::Local), route by route.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Refuse the request: 503 with Retry-After.
    Closed,
    /// Judge by the instance's share of the limit, counted in the process: needs a limiter
    /// [with a local fallback](crate::Limiter::with_local), which tells what is admitted in all.
    ///
    /// A layer of a limiter without one is a [`ConfigError`](crate::ConfigError::LocalWithoutFallback).
    Local,
    /// Let the request pass, unlimited and without RateLimit fields.
    #[default]
    Open,
}

impl FailurePolicy {
    /// Turns "no verdict" into a decision.
    ///
    /// [`ErrorKind::Overloaded`] is refused by every policy: the store is well, and a flood must not lift its own limit.
    ///
    /// [`Local`](Self::Local) refuses here, because the failed check is gone. Call
    /// [`CheckFuture::fail_local`](crate::limiter::CheckFuture::fail_local) before you await it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Error, ErrorKind, FailurePolicy};
    ///
    /// let down = Error::new(ErrorKind::Unavailable, "connection refused");
    /// assert!(FailurePolicy::Open.resolve(Err(down.clone())).is_allowed());
    /// assert!(!FailurePolicy::Closed.resolve(Err(down)).is_allowed());
    /// ```
    #[inline]
    pub fn resolve(self, result: Result<Decision, Error>) -> Decision {
        result.unwrap_or_else(|error| match self {
            _ if error.kind() == ErrorKind::Overloaded => Decision::without_store(false, Source::Overloaded),
            Self::Closed | Self::Local => Decision::without_store(false, Source::Closed),
            Self::Open => Decision::without_store(true, Source::Open),
        })
    }
}
