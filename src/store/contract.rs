//! What a store does: the [`Store`] trait, the [`Answer`] that it returns, and the future of an answer that is pending.

use std::task::{Context, Poll};
use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::breaker::{Breakers, settings::BreakerSettings};
use crate::check::{Charge, Check};
use crate::error::{ConfigError, Error, ErrorKind};
use crate::hold::{HoldChange, SettleAnswer};
use crate::{key::Key, observe::Observer, policy::Policy, store::ban::CountChange, verdict::Verdict};

/// Keeps counts and judges checks against them.
///
/// A store judges a check **atomically**: all of its charges fit and are charged, or none is. A denial is a verdict; an
/// [`Error`] means that there is no verdict. [The module's page](crate::store#a-store-of-your-own) has a complete
/// example.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "expected `MemoryStore::new()`, `RedisStore::open(..)?` or your own store",
    note = "if this is a `Result`, add `?`; if it is a builder, finish it with `.open(..)?`"
)]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Judges `check`: charges all of its charges if all fit, and none otherwise.
    ///
    /// Charges under [shadow policies](Policy::is_shadow) do not decide. If all other charges fit, the check is
    /// allowed, and each shadow charge that fits is charged too; [`Outcome::fits`](crate::store::Outcome::fits) says
    /// which. A store that treats shadow charges as any others denies checks that a shadow charge should not deny.
    ///
    /// A count belongs to a key and a policy. Find it by [`Key::encoded`] and the policy's name, never by the `Debug`
    /// output of a key, which hides the key.
    ///
    /// The answer owns its data. A pending answer does nothing before it is polled, and must not send a check again
    /// that may have been charged.
    fn check(&self, check: &Check) -> Answer<Verdict>;

    /// Forgets what `key` has spent and holds under `policy`, and lifts a ban. Returns whether there was a count or a
    /// ban to forget.
    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool>;

    /// The store that this one wraps. What this store does not implement itself is then the inner store's: its
    /// deadline, its breaker, its failure domains, its holds, and whatever this trait gains later.
    ///
    /// The inner store gets the keys and policies as the limiter has them. A wrapper that replaces them in
    /// [`check`](Self::check) has to replace them in [`peek`](Self::peek), [`charge_up_to`](Self::charge_up_to),
    /// [`change_hold`](Self::change_hold), [`change_count`](Self::change_count) and
    /// [`failure_domain_of`](Self::failure_domain_of) too: otherwise a ban is one of another key, and a hold stays open
    /// until its time-to-live has passed.
    ///
    /// Defaults to `None`: this store wraps none.
    fn inner(&self) -> Option<&dyn Store> {
        None
    }

    /// Tests whether checks can be judged now, for [`Limiter::ready`](crate::Limiter::ready). Must not charge anything.
    ///
    /// The limiter applies neither the [deadline](Self::deadline) nor the [breaker](Self::breaker) to the answer, so
    /// the store has to answer within some seconds by itself. Defaults to `Ok`, for stores that are always ready.
    fn ready(&self) -> Answer<()> {
        self.inner().map_or(Answer::Ready(Ok(())), |inner| inner.ready())
    }

    /// How long the limiter waits for a pending answer, not counting time in which the executor did not run. A
    /// `RedisStore` may take longer for the first connection of a process (`RedisStoreBuilder::first_dial_deadline`).
    ///
    /// Defaults to 50 ms: long enough for a busy network, short enough to go unnoticed.
    fn deadline(&self) -> Duration {
        self.inner().map_or(DEFAULT_DEADLINE, |inner| inner.deadline())
    }

    /// Sets the observer of events inside the store: its calls, and warnings about its setup. `None` removes an earlier
    /// observer; a [quiet](crate::Limiter::without_notices) limiter without observers passes `None`.
    ///
    /// Called when a limiter is created over the store, and whenever the limiter's observers change. The limiter itself
    /// reports decisions, failures and changes of the breaker. Defaults to doing nothing. Hidden, because only this
    /// crate can make events.
    #[doc(hidden)]
    fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        if let Some(inner) = self.inner() {
            inner.set_observer(observer);
        }
    }

    /// The settings of the circuit breaker, which stops the limiter from asking a store that does not answer. Applies
    /// to pending answers.
    ///
    /// Defaults to `None`, no breaker, for stores that cannot be down.
    fn breaker(&self) -> Option<BreakerSettings> {
        self.inner().and_then(|inner| inner.breaker())
    }

    /// The number of failure domains: parts of the key space that can be down independently, such as the masters of a
    /// cluster. Each has its own breaker. As [`failure_domain_of`](Self::failure_domain_of), it must not wait.
    ///
    /// Defaults to 1.
    fn failure_domains(&self) -> usize {
        self.inner().map_or(1, |inner| inner.failure_domains())
    }

    /// The failure domain of `key`, counted from 0. A check of several keys asks the breaker of its first key; a
    /// `RedisStore` asks the breaker of each failure domain. The limiter calls this method while it
    /// holds a lock, so it must not wait, and must not use a limiter.
    ///
    /// Defaults to 0.
    fn failure_domain_of(&self, key: &Key) -> usize {
        self.inner().map_or(0, |inner| inner.failure_domain_of(key))
    }

    /// The number of instances that share this store, if the store counts them.
    /// [`Limiter::with_local_fallback`](crate::Limiter::with_local_fallback) calls this method once when it is set,
    /// so that the store starts to count, and whenever it needs the number. As
    /// [`failure_domain_of`](Self::failure_domain_of), it must not wait.
    ///
    /// Defaults to `None`, unknown.
    fn instances(&self) -> Option<u32> {
        self.inner().and_then(|inner| inner.instances())
    }

    /// Whether the store has holds: it makes a hold of each charge with a name
    /// ([`Charge::hold`]), counts open holds as spent under policies with
    /// [holds](Policy::holds), and ends them.
    ///
    /// Defaults to `false`. [`Limiter::hold`](crate::Limiter::hold) is then an error, and the store gets only plain
    /// charges.
    fn has_holds(&self) -> bool {
        self.inner().is_some_and(|inner| inner.has_holds())
    }

    /// Whether the store judges alternatives: of charges that follow one another with
    /// [`Charge::has_alternative`], the last one without, it charges the first
    /// that fits, whole, and the others nothing. It denies the check only if none of them fits; only then does it count
    /// rejections of theirs.
    ///
    /// Defaults to `false`. [`Check::first_of`] is then an error, and the store gets no alternatives.
    fn has_alternatives(&self) -> bool {
        self.inner().is_some_and(|inner| inner.has_alternatives())
    }

    /// Changes a hold: settles it, or moves its end. `hold` has the key, the policy and the [name](Charge::hold) of the
    /// charge that made it; its cost means nothing here. The answer says whether the hold was still open; a hold that
    /// has ended is not changed. A change may be sent again if its fate is unknown, so it must not be made twice.
    ///
    /// Defaults to an error, for stores without holds.
    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        match self.inner() {
            Some(inner) => inner.change_hold(hold, change),
            None => Answer::Ready(Err(ConfigError::store_without_holds().into())),
        }
    }

    /// Evaluates `check`: returns the verdict that [`check`](Self::check) would return, and charges, holds and counts
    /// nothing. For [`Limiter::peek_all`](crate::Limiter::peek_all).
    ///
    /// Defaults to an error, for stores that can only charge.
    fn peek(&self, check: &Check) -> Answer<Verdict> {
        match self.inner() {
            Some(inner) => inner.peek(check),
            None => unable("look at costs without charging them", "peek"),
        }
    }

    /// Charges as much of the cost of `charge` as fits, atomically, for
    /// [`Limiter::check_up_to`](crate::Limiter::check_up_to). Returns the charged units with the verdict on a check of
    /// as many; if nothing fits, 0 with the denial of a cost of 1, which counts as any denial.
    ///
    /// Defaults to an error, for stores that charge all of a cost or nothing.
    fn charge_up_to(&self, charge: &Charge) -> Answer<(Verdict, u64)> {
        match self.inner() {
            Some(inner) => inner.charge_up_to(charge),
            None => unable("charge a part of a cost", "charge_up_to"),
        }
    }

    /// Changes the count of `key` under `policy` by hand, for [`Limiter::ban`](crate::Limiter::ban) and the methods
    /// beside it. Each change is atomic. The store must not make a change twice.
    ///
    /// | change | what the store does | answer |
    /// | --- | --- | --- |
    /// | `Ban(duration)` | each charge of the key under the policy that a ban denies ([`Charge::is_denied_by_ban`]) does not fit until `duration` has passed; its outcome is that of its count, with nothing available, and no wait ends before the ban | 0 |
    /// | `Unban` | ends a ban, also one that [`Policy::ban_after`] has made | 1 if the key was banned, else 0 |
    /// | `Record(units)` | charges the units, whether or not they fit, at most [`Policy::MAX_LIMIT`] | the charged units |
    /// | `Credit(units)` | takes up to `units` charged units off the count | how many were taken off |
    ///
    /// A ban never changes a count: when it ends, or is ended, the count is what it would be without the ban. While a
    /// charge is banned, the check charges nothing and counts no rejection, unless the charge is under a
    /// [shadow policy](Policy::is_shadow): that charge alone is left out. Open holds stay, and can be settled.
    /// [`reset`](Self::reset) ends a ban too.
    ///
    /// Defaults to an error, for stores without such changes.
    fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Answer<u64> {
        if let Some(inner) = self.inner() {
            return inner.change_count(key, policy, change);
        }
        unable("ban a key or change its units by hand", "change_count")
    }
}

/// The error of a store without a method.
fn unable<T>(what: &str, method: &str) -> Answer<T> {
    let message =
        format!("the store cannot {what}; use a `MemoryStore` or a `RedisStore`, or implement `Store::{method}`");
    Answer::Ready(Err(ConfigError::new(message).into()))
}

/// The failure domain of `key`. A number beyond the store's failure domains wraps around: each has queues of its own.
pub(crate) fn failure_domain_of(store: &dyn Store, key: &Key) -> usize {
    store.failure_domain_of(key) % store.failure_domains().max(1)
}

/// The default of [`Store::deadline`].
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// What a [`Store`] returns: a result, or the future of a result.
///
/// # Examples
///
/// ```
/// use tollgate::{Error, ErrorKind, store::Answer};
///
/// let known: Answer<bool> = Answer::Ready(Ok(true));
/// let awaited: Answer<bool> = Answer::pending(async {
///     Err(Error::new(ErrorKind::Unavailable, "connection refused"))
/// });
/// # let _ = (known, awaited);
/// ```
#[derive(Debug)]
pub enum Answer<T> {
    /// A result that is known without waiting.
    Ready(Result<T, Error>),
    /// The future of a result: `pending.await` is a `Result<T, Error>`.
    Pending(Pending<T>),
}

impl<T> Answer<T> {
    /// Wraps a future. The limiter drops it at the deadline; the check then gets an [`Error`] of kind
    /// [`Deadline`](crate::ErrorKind::Deadline) that [may have charged](Error::may_have_charged).
    pub fn pending(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self::Pending(Pending::new(future))
    }
}

/// The future of a store's answer. See [`Answer::pending`]. Not exported: a caller awaits it.
#[must_use = "a pending answer does nothing before it is polled"]
pub struct Pending<T> {
    future: Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>,
    /// Decides what happens at the deadline. With `None` the check gets an error and may have been charged.
    handler: Option<Arc<dyn DeadlineHandler>>,
}

/// What a store decides about a check in flight: its error at the deadline, extra time, and who asks the breakers.
pub(crate) trait DeadlineHandler: Send + Sync {
    /// The error of a check that has no answer after `deadline`.
    fn error(&self, deadline: Duration) -> Error;

    /// The extra time of a check that has waited for `deadline`, while the first connection is made or right after it
    /// was made. `None` ends the wait.
    fn more_time(&self, deadline: Duration) -> Option<Duration>;

    /// Whether the store may have received the check, or may still receive it, now that its caller has gone.
    fn may_reach_store(&self) -> bool;

    /// Notes that the check will not be sent: its caller asks in another way.
    fn put_back(&self);

    /// Hands over the breakers of the failure domains. Returns whether the store itself asks them for this check,
    /// because the check may span several domains; otherwise the limiter asks. Called at the first poll.
    fn takes_over(&self, breakers: &Arc<Breakers>) -> bool;
}

impl<T> Pending<T> {
    /// Wraps a future. A check that is dropped at the deadline counts as possibly charged.
    pub(crate) fn new(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self { future: Box::pin(future), handler: None }
    }

    /// Creates a future that never resolves, in place of an answer that another future waits for.
    pub(crate) fn never() -> Self
    where
        T: Send + 'static,
    {
        Self::new(std::future::pending())
    }

    /// Changes the result of the answer.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> Pending<U>
    where
        T: 'static,
    {
        let Self { future, handler } = self;
        Pending { future: Box::pin(async move { future.await.map(change) }), handler }
    }

    /// Sets what decides about the check at the deadline.
    #[cfg(feature = "redis")]
    pub(crate) fn with_deadline_handler(self, handler: Arc<dyn DeadlineHandler>) -> Self {
        Self { handler: Some(handler), ..self }
    }

    /// Whether the store itself asks the breakers for this check. See [`DeadlineHandler::takes_over`].
    pub(crate) fn takes_over(&self, breakers: Option<&Arc<Breakers>>) -> bool {
        let both = self.handler.as_ref().zip(breakers);
        both.is_some_and(|(handler, breakers)| handler.takes_over(breakers))
    }

    /// Gives up a check that was never polled, because its caller asks in another way.
    pub(crate) fn put_back(self) {
        if let Some(handler) = &self.handler {
            handler.put_back();
        }
    }

    /// Gives the check up. Returns whether the store may have received it, or may still receive it.
    pub(crate) fn abandon(self) -> bool {
        let Self { future, handler } = self;
        drop(future);
        handler.is_none_or(|handler| handler.may_reach_store())
    }

    /// The extra time of the check. See [`DeadlineHandler::more_time`].
    pub(crate) fn more_time(&self, deadline: Duration) -> Option<Duration> {
        self.handler.as_ref()?.more_time(deadline)
    }

    /// The error of a check that has no answer after `deadline`.
    pub(crate) fn deadline_error(&self, deadline: Duration) -> Error {
        match &self.handler {
            Some(handler) => handler.error(deadline),
            None => no_answer(deadline).charge_unknown(),
        }
    }
}

/// The error [`Deadline`](ErrorKind::Deadline). It does not say whether the check may have been charged.
pub(crate) fn no_answer(deadline: Duration) -> Error {
    Error::new(ErrorKind::Deadline, format!("no answer within {deadline:?}"))
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
