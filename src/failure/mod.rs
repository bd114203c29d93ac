//! What happens when the store cannot answer: the [`FailurePolicy`] and the circuit [breaker](BreakerSettings).
//!
//! A shared store can be down, slow or misconfigured. A limiter that waits for it takes the service down too; a limiter
//! that ignores the failure silently stops limiting. In tollgate, each route has its own failure policy, and the
//! limiter reports outages.
//!
//! # Rules
//!
//! 1. A check waits for the store until the [deadline](crate::store::Store::deadline), 50 ms by default.
//! 2. Without a verdict, the failure policy of the route or the layer decides: open, closed or local.
//! 3. After a few failures the [breaker](BreakerSettings) opens, and checks fail at once. Probes detect when the store
//!    is back.
//! 4. A check of an overloaded process ([`ErrorKind::Overloaded`]) is refused by every
//!    failure policy, because a flood must not lift the limit that it exceeds. So is a check that is wrong
//!    ([`ErrorKind::InvalidCall`]), because a mistake in the program is no outage.
//! 5. A check whose fate is unknown is never sent again.
//!
//! | policy | request | fields | choose it where |
//! | --- | --- | --- | --- |
//! | [`Open`](FailurePolicy::Open), the default | passes | none | the limit protects capacity |
//! | [`Closed`](FailurePolicy::Closed) | 503 with Retry-After | `Retry-After`, `Cache-Control` | an unlimited request costs money or security |
//! | [`Local`](FailurePolicy::Local) | judged by this instance's share of the limit | RateLimit of the share | both matter, and the number of instances is known |
//!
//! # The default
//!
//! Requests pass while the store is down:
//!
//! ```
//! use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! # let store = MemoryStore::new();
//! let limit = RateLimitLayer::new(
//!     Limiter::new(store),
//!     Policy::per_minute("all", 800)?,
//!     GlobalKey,
//! );
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```
//!
//! # Customised
//!
//! Each of 8 instances enforces an eighth of the limit while the store is down, and logins are refused:
//!
//! ```
//! use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, Route};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! # let store = MemoryStore::new();
//! let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
//! let limit =
//!     RateLimitLayer::new(limiter, Policy::per_minute("all", 800)?, GlobalKey)
//!         .fail_local()
//!         .route("POST /login", Route::new().fail_closed())
//!         .validated()?;
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```
//!
//! With feature `test-util`, `FailingStore` simulates an outage in tests.

use crate::error::{Error, ErrorKind, in_words};
use crate::{decision::Decision, verdict::Source};

pub use crate::breaker::settings::BreakerSettings;

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
/// use tollgate::{
///     FailurePolicy, GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let all = Policy::per_minute("all", 800)?;
/// let limit =
///     RateLimitLayer::new(Limiter::new(MemoryStore::new()), all, GlobalKey)
///         .fail_closed();
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

mod resolved {
    /// What a failure policy makes of an error: a decision, or the answer to a hold. In a private module, because only
    /// this crate implements it.
    pub trait Resolved {
        /// The answer of a store that was not asked or gave no verdict.
        fn without_store(decision: super::Decision) -> Self;
    }
}

pub(crate) use self::resolved::Resolved;

impl Resolved for Decision {
    #[inline]
    fn without_store(decision: Decision) -> Self {
        decision
    }
}

impl FailurePolicy {
    /// The words of `on-store-failure` in a file of limits.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("open", Self::Open), ("closed", Self::Closed), ("local", Self::Local)];

    /// Turns the error of a check into a decision, and that of a [hold](crate::Limiter::hold) into a
    /// [`HoldAnswer`](crate::limiter::HoldAnswer). A decision, and what a store or a fallback has held, is returned
    /// unchanged.
    ///
    /// Every policy refuses [`ErrorKind::Overloaded`] and [`ErrorKind::InvalidCall`]: the store is not away. A flood
    /// must not lift the limit that it exceeds, and neither must a mistake in the program.
    ///
    /// [`Local`](Self::Local) refuses here, because the check that the fallback would judge is gone. To use the
    /// fallback, call [`CheckFuture::fail_local`](crate::limiter::CheckFuture::fail_local) before the check is awaited,
    /// or [`HoldFuture::fail_local`](crate::limiter::HoldFuture::fail_local).
    ///
    /// A hold that [`Open`](Self::Open) lets pass has nothing to settle: its changes are answered with
    /// [`SettleAnswer::NotHeld`](crate::store::SettleAnswer::NotHeld).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Decision, Error, ErrorKind, FailurePolicy};
    ///
    /// let checked: Result<Decision, Error> =
    ///     Err(Error::new(ErrorKind::Unavailable, "connection refused"));
    /// assert!(FailurePolicy::Open.resolve(checked.clone()).is_allowed());
    /// assert!(!FailurePolicy::Closed.resolve(checked).is_allowed());
    /// ```
    #[inline]
    pub fn resolve<T: Resolved>(self, result: Result<T, Error>) -> T {
        result.unwrap_or_else(|error| {
            T::without_store(match self {
                _ if error.kind() == ErrorKind::Overloaded => Decision::without_store(false, Source::Overloaded),
                Self::Open if error.kind().follows_failure_policy() => Decision::without_store(true, Source::Open),
                Self::Closed | Self::Local | Self::Open => Decision::without_store(false, Source::Closed),
            })
        })
    }
}
