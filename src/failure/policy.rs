//! The failure policy: turning "no verdict" into a decision.

use crate::{
    decision::Decision,
    error::{Error, ErrorKind, in_words},
    verdict::Source,
};

/// What happens to a request when the store cannot answer.
///
/// The default is [`Open`](Self::Open): a limiter that fails should not take the service down with it. Where an
/// unlimited request does more harm than a refused one (logins, anything that spends money or a metered upstream
/// quota), choose [`Closed`](Self::Closed) or [`Local`](Self::Local), route by route.
///
/// As text: `open`, `closed`, `local`.
///
/// # Examples
///
/// ```
/// use tollgate::{FailurePolicy, GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let all = Policy::per_minute("all", 800)?;
/// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), all, GlobalKey).fail_closed();
/// assert_eq!(FailurePolicy::default(), FailurePolicy::Open);
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Refuses the request: 503 with Retry-After.
    Closed,
    /// Judges by the instance's share of the limit, counted in the process. Needs a limiter
    /// [with a local fallback](crate::Limiter::with_local_fallback), whose docs say what is admitted in total.
    ///
    /// A layer of a limiter without a fallback is a [`ConfigError`](crate::ConfigError).
    Local,
    /// Lets the request pass, unlimited and without RateLimit fields.
    #[default]
    Open,
}

in_words!(FailurePolicy, "failure policy");

impl FailurePolicy {
    /// The words of `on-store-failure` in a file of limits.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("open", Self::Open), ("closed", Self::Closed), ("local", Self::Local)];

    /// Turns an error into a decision. A decision is returned unchanged.
    ///
    /// Every policy refuses [`ErrorKind::Overloaded`] and [`ErrorKind::InvalidCall`]: the store is not away. A flood
    /// must not lift the limit that it exceeds, and neither must a mistake in the program.
    ///
    /// [`Local`](Self::Local) refuses here, because the check that the fallback would judge is gone. To use the
    /// fallback, call [`CheckFuture::fail_local`](crate::limiter::CheckFuture::fail_local) before the check is awaited.
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
            Self::Open if error.kind().follows_failure_policy() => Decision::without_store(true, Source::Open),
            Self::Closed | Self::Local | Self::Open => Decision::without_store(false, Source::Closed),
        })
    }
}
