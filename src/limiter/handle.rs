//! The limiter: checks, peeks and resets.

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use crate::error::{ConfigError, Error};
use crate::limiter::decision_future::{Sent, decide};
use crate::limiter::{check_future::CheckFuture, core::Core};
use crate::limiter::{lease, sharded};
use crate::observe::{CheckSpan, Event, ObservedRequest, Observer, Other, ResetEvent};
use crate::{calls::Purpose, check::Check, failure::FailurePolicy, key::Key, policy::Policy, store::Answer};

/// A rate limiter without HTTP: judges checks against a store, within the store's deadline.
///
/// Jobs, consumers and outbound clients call a limiter directly; [`RateLimitLayer`](crate::RateLimitLayer) calls one
/// for each request. Clones are cheap and share the store, so they spend from one budget.
///
/// # Examples
///
/// ```
/// use tollgate::{FailurePolicy, Limiter, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let quota = Policy::per_day("quota", 9_500)?;
///
/// let decision = limiter.check("key1", &quota, 100).await?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.available(), Some(9_400));
///
/// // With a failure policy instead of an error, for a store that may be down.
/// let decision =
///     FailurePolicy::Open.resolve(limiter.check("key1", &quota, 1).await);
/// assert!(decision.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    /// Behind a single pointer, because each check that waits holds a clone.
    pub(super) core: Arc<Core>,
}

impl Limiter {
    /// Whether the [breaker](crate::failure::BreakerSettings) keeps checks from the store right now; on a cluster, from
    /// at least one master.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore};
    ///
    /// # let store = MemoryStore::new();
    /// let limiter = Limiter::new(store);
    /// let status = if limiter.is_breaker_open() {
    ///     "the failure policy decides"
    /// } else {
    ///     "the store decides"
    /// };
    /// # assert_eq!(status, "the store decides");
    /// ```
    pub fn is_breaker_open(&self) -> bool {
        self.core.calls.breakers.as_ref().is_some_and(|breakers| breakers.is_open())
    }

    /// Waits until the store can judge checks, or returns why the store cannot. Call it at start-up and in health
    /// checks.
    ///
    /// On a `RedisStore`, `ready` connects, calls the script on each master, and tests whether it may write. It charges
    /// nothing, does not ask the [breaker](crate::failure::BreakerSettings), and leaves the connections open for the
    /// first checks. `ready` waits up to 5 s for slow connections and answers. A server that refuses a connection, a
    /// login or a command is an error at once. A [`MemoryStore`](crate::MemoryStore) is ready at once.
    ///
    /// # Errors
    ///
    /// The [`Error`] that checks would get, with the message of the store.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. Connections that were dialled stay open.
    ///
    /// # Examples
    ///
    /// At the start, and in the handler of a health check:
    ///
    /// ```
    /// use axum::{Router, http::StatusCode, routing::get};
    /// use tollgate::{Limiter, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let store = MemoryStore::new();
    /// let limiter = Limiter::new(store);
    /// if let Err(error) = limiter.ready().await {
    ///     eprintln!("limits are not enforced: {error}");
    /// }
    /// let health = move || async move {
    ///     match limiter.ready().await {
    ///         Ok(()) => StatusCode::OK,
    ///         Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    ///     }
    /// };
    /// let app: Router = Router::new().route("/readyz", get(health));
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<(), Error> {
        self.core.mistake.found()?;
        match self.core.calls.store.ready() {
            Answer::Ready(result) => result,
            Answer::Pending(result) => result.await,
        }
    }

    /// Charges `cost` units to `key` under `policy`, if they fit.
    ///
    /// Code that cannot await calls [`try_check`](Self::try_check), if the store answers at once.
    ///
    /// # Errors
    ///
    /// The future resolves to an [`Error`] if the store gives no verdict within its deadline. A check under [shadow
    /// policies](Policy::with_shadow) alone is then allowed instead, from the source
    /// [`Open`](crate::decision::Source::Open). An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if the
    /// limiter or the policy has a [mistake](Policy#mistakes), also under shadow policies.
    ///
    /// # Panics
    ///
    /// The future panics if it is polled again after it has returned its result.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the first poll. If the future is dropped later, the check may have been charged; it is
    /// never sent again.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let emails = Policy::per_minute("emails", 10)?;
    /// let decision = limiter.check("user:17", &emails, 1).await?;
    /// if let Some(wait) = decision.retry_after() {
    ///     println!("try again in {wait:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A denial is a decision too. Code that drops it limits nothing, and the compiler warns:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # use tollgate::{Error, Limiter, Policy};
    /// # async fn send(limiter: &Limiter, emails: &Policy) -> Result<(), Error> {
    /// limiter.check("user:17", emails, 1).await?; // `.into_result()?` is missing
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self, key: impl Into<Key>, policy: &Policy, cost: u64) -> CheckFuture {
        self.check_all(Check::new(key, policy, cost))
    }

    /// Charges all charges of `check`, or none.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`]. An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if the check has holds,
    /// which need the handle of [`hold_all`](Self::hold_all).
    ///
    /// # Panics
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::check`].
    ///
    /// # Examples
    ///
    /// See [`Check`].
    #[inline]
    pub fn check_all(&self, check: Check) -> CheckFuture {
        let accepted = self.core.validate(&check).and_then(|()| check.refuse_holds());
        CheckFuture::accepted(Purpose::CHECK, Arc::clone(&self.core), check, accepted)
    }

    /// Looks up where `key` stands under `policy`, and whether a cost of 1 would pass. Charges nothing.
    ///
    /// The decision [is allowed](crate::Decision::is_allowed) if a unit is available. Otherwise the policy is violated
    /// and [`retry_after`](crate::Decision::retry_after) is the time until the next unit comes back, or until a
    /// [ban](Policy::ban_after) ends. A peek is never counted as a denial and never leads to a ban, and observers get
    /// no [decision](crate::observe::Event#names) of it. Other requests may spend the unit before the next check.
    /// To charge, use [`check`](Self::check), which also lets a cost of 0 pass, whatever is spent.
    ///
    /// [`exhausted_in`](crate::Decision::exhausted_in) tells when the key is denied if it goes on at its pace.
    ///
    /// Each peek asks a `RedisStore`. If the store reports room, denials of the key that this process
    /// [remembers](crate::decision::Source::DenyCache) end, because another process may have reset the key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let exports = Policy::per_day("exports", 1)?;
    /// let _ = limiter.check("alice", &exports, 1).await?;
    ///
    /// // For a page that shows what is left.
    /// let decision = limiter.peek("alice", &exports).await?;
    /// assert_eq!(decision.available(), Some(0));
    /// assert!(!decision.is_allowed() && decision.retry_after().is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`].
    ///
    /// # Panics
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub fn peek(&self, key: impl Into<Key>, policy: &Policy) -> CheckFuture {
        CheckFuture::new(Purpose::PEEK, Arc::clone(&self.core), Check::new(key, policy, 0))
    }

    /// Forgets what `key` has spent and holds under `policy`, and lifts a [ban](Policy::ban_after), so that the next
    /// one is the first again. Ends the pause of the key, for which an upstream of a
    /// [`ThrottleLayer`](crate::ThrottleLayer) has asked. Returns whether there was anything to forget: a count, a ban
    /// or a pause, in the store or in this process.
    ///
    /// A pause that was [shared](crate::ThrottleLayer::with_shared_pauses) ends in this process at once, and about a
    /// second later in the processes that know it from the store. A process that the upstream itself has asked waits
    /// until the end, unless it resets the key too.
    ///
    /// `false` usually means that requests are charged to another key, or under another policy: counts belong to the
    /// policy's name, algorithm, window or calendar, resolution and number of shards. A `RedisStore` keeps a count a
    /// little longer than its window, and returns `true` until the count is gone.
    ///
    /// Under a [lease](Policy::with_lease), this limiter gives its blocks back before the reset, and afterwards those
    /// that checks have taken during the call. Each may take a deadline more. Other processes still spend theirs.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let login = Policy::per_minute("login", 5)?;
    /// let _ = limiter.check("alice", &login, 5).await?;
    /// assert!(limiter.reset("alice", &login).await?);
    /// assert!(
    ///     !limiter.reset("Alice", &login).await?,
    ///     "another key, or nothing spent"
    /// );
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Take the key from the extractor that charges it, because extractors group addresses and hash tokens. Each has a
    /// method `key_of`, such as [`PeerIp::key_of`](crate::PeerIp::key_of). The key of a tuple is [`Key::join`] of its
    /// parts' keys, in their order.
    ///
    /// # Errors
    ///
    /// [`Error`] if the store does not answer within its deadline, or fails. If
    /// [`may_have_charged`](Error::may_have_charged) is true, the count may be forgotten, or some of its shards.
    ///
    /// # Cancel safety
    ///
    /// Once the future has been polled, the key may be reset although the future is dropped. Under a lease, blocks that
    /// checks took during the call may then still be spent.
    pub async fn reset(&self, key: impl Into<Key>, policy: &Policy) -> Result<bool, Error> {
        self.core.mistake.found()?;
        policy.validate()?;
        let key = key.into();
        let observed = self.core.calls.observer.as_ref().map(|observer| (observer, Instant::now()));
        let found = self.core.calls.fallback.as_ref().is_some_and(|fallback| fallback.forget(&key, policy));
        // Blocks are settled with what was spent, so that it still counts if the reset fails.
        let reset = self.reset_in_store(&key, policy);
        let result = lease::change_without_blocks(&self.core, &key, policy, reset).await;
        let was_paused = self.core.queues.end_pause(&key, policy);
        let result = result.map(|in_store| in_store || found || was_paused);
        self.core.queues.forget(&key, policy);
        if let Some((observer, started)) = observed {
            let reset = ResetEvent::new(&key, policy, &result, started.elapsed());
            observer.on_event(&Event::other(Other::Reset(reset)));
        }
        result
    }

    async fn reset_in_store(&self, key: &Key, policy: &Policy) -> Result<bool, Error> {
        let calls = &self.core.calls;
        let reset_one = |key: Key, policy: Policy| async move { calls.reset(&key, &policy).await };
        let found = sharded::of_each(key, policy, reset_one).await?;
        // A pause of any length has the same key. The count is forgotten, whatever becomes of the pause.
        let was_paused = calls.reset(key, &policy.pauses(1)).await.map_err(Error::charge_unknown)?;
        Ok(was_paused || found.contains(&true))
    }

    /// Sends a check of the middleware, and takes the charges out of it. The failure policy `failure` decides if the
    /// store gives no verdict. `request` is called if there is an observer.
    #[inline]
    pub(crate) fn decide<'a>(
        &self,
        check: &mut Check,
        failure: FailurePolicy,
        request: impl FnOnce() -> ObservedRequest<'a>,
    ) -> Sent {
        let observer = self.core.calls.observer.as_ref();
        let span = observer.map(|observer| CheckSpan::start(observer, check, Some(request())));
        decide(&self.core, check, failure, span)
    }

    /// The observer that receives warnings and refusals.
    #[inline]
    pub(crate) fn listener(&self) -> Option<&dyn Observer> {
        self.core.calls.listener.as_deref()
    }

    /// The observer that receives warnings and refusals, for an object that reports by itself.
    #[cfg(any(feature = "plans", feature = "serde"))]
    pub(crate) fn shared_listener(&self) -> Option<&Arc<dyn Observer>> {
        self.core.calls.listener.as_ref()
    }

    /// Whether both are clones of one limiter.
    pub(crate) fn shares_store(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core.calls.store, &other.core.calls.store)
    }

    /// Passes an event to the listener, if there is one.
    #[cold]
    pub(crate) fn report(&self, event: &Event<'_>) {
        if let Some(listener) = self.listener() {
            listener.on_event(event);
        }
    }

    /// What is wrong with the settings of the limiter.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.core.mistake.found()
    }

    /// Whether the limiter has a local fallback.
    pub(crate) fn has_fallback(&self) -> bool {
        self.core.calls.fallback.is_some()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.calls.fmt(f)
    }
}
