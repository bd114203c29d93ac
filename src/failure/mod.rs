//! What a request gets when the store cannot answer.

mod breaker;
mod circuit;
mod tally;

pub use self::breaker::Breaker;
pub(crate) use self::{
    circuit::{Circuit, Permit},
    tally::Signal,
};
use crate::{
    decision::{Decision, Source},
    error::Error,
};

/// What happens to a request when the store cannot answer.
///
/// The default is [`Open`](Self::Open): a limiter that is out of order should not take the service down with it. Where
/// an unlimited request does more harm than a refused one (logins, anything that spends money or a metered upstream
/// quota), choose [`Closed`](Self::Closed), route by route.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Refuse the request: 503 with Retry-After.
    Closed,
    /// Let the request pass, unlimited and without RateLimit fields.
    #[default]
    Open,
}

impl FailurePolicy {
    /// Turns "no verdict" into a decision.
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
        result.unwrap_or_else(|_| match self {
            Self::Closed => Decision::without_store(false, Source::Closed),
            Self::Open => Decision::without_store(true, Source::Open),
        })
    }
}
