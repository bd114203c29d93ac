//! The future of a hold.

use std::task::{Context, Poll, ready};
use std::{fmt, future::Future, mem, pin::Pin, sync::Arc};

use crate::error::{ConfigError, Error};
use crate::limiter::hold::{Charged, Hold, HoldAnswer, RequestHolds};
use crate::limiter::{check_future::CheckFuture, core::Core, handle::Limiter};
use crate::{calls::Purpose, check::Check, decision::Decision, key::Key, policy::Policy};

impl Limiter {
    /// Holds `cost` units of `key` under `policy`, if they fit, until the cost of the work is known: a charge that is
    /// settled later. Until then the units count as spent, for holds and for plain checks of the policy.
    ///
    /// `cost` is an estimate in units, from 1 to the limit. A hold above the limit is denied, and no wait helps.
    ///
    /// The policy needs [holds](Policy::with_holds), and the store has to have them, as a
    /// [`MemoryStore`](crate::MemoryStore) and a `RedisStore` do. A hold that is neither settled nor renewed within its
    /// time-to-live ends by itself, also if this process is gone: it is charged or released, as the policy says.
    ///
    /// Retry-After of a denial that open holds cause is not exact, because a hold may end at any time: it is no longer
    /// than a hold [typically](crate::policy::HoldSettings::with_typical_duration) lasts.
    ///
    /// # Errors
    ///
    /// The future resolves to an [`Error`] if the store gives no verdict within its deadline, as for
    /// [`check`](Self::check). If the error [may have charged](Error::may_have_charged), the store may hold the units:
    /// they are released in the background, and the hold is never sent again.
    /// [`FailurePolicy::resolve`](crate::FailurePolicy::resolve) turns the error into a handle that holds
    /// nothing, or into a denial.
    ///
    /// An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if the policy or the store has no holds, or the
    /// cost is 0.
    ///
    /// # Panics
    ///
    /// The future panics if it is polled again after it has returned its result.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the first poll. If the future is dropped later, the units that the store may hold end as
    /// those of a handle that is dropped, in the background.
    ///
    /// # Examples
    ///
    /// See [`Hold`].
    #[doc(alias = "reserve")]
    pub fn hold(&self, key: impl Into<Key>, policy: &Policy, cost: u64) -> HoldFuture {
        self.hold_named(Check::hold(key, policy, cost))
    }

    /// Makes all holds and plain charges of `check`, or none. The handle has all holds of the check; plain charges are
    /// charged at once.
    ///
    /// # Errors
    ///
    /// As [`Limiter::hold`].
    ///
    /// # Panics
    ///
    /// As [`Limiter::hold`].
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::hold`].
    ///
    /// # Examples
    ///
    /// A request is charged at once, and its tokens are held:
    ///
    /// ```
    /// use tollgate::{Check, Limiter, MemoryStore, Policy, policy::HoldSettings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let requests = Policy::per_minute("requests", 60)?;
    /// let tokens =
    ///     Policy::per_minute("tokens", 1_000)?.with_holds(HoldSettings::new());
    /// let check =
    ///     Check::new("tenant:3", &requests, 1).and_hold("tenant:3", &tokens, 400);
    /// let hold = limiter.hold_all(check).await?.into_result()?;
    /// hold.settle(250).await?;
    /// assert_eq!(limiter.peek("tenant:3", &requests).await?.available(), Some(59));
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_all(&self, mut check: Check) -> HoldFuture {
        // A check may be cloned and sent twice, and two holds of one name would be one.
        check.rename_holds();
        self.hold_named(check)
    }

    fn hold_named(&self, check: Check) -> HoldFuture {
        let holds = RequestHolds::of(Arc::clone(&self.core.holds), &check);
        if !holds.is_empty() && !self.core.calls.store.has_holds() {
            return HoldFuture::failed(ConfigError::store_without_holds());
        }
        let asked = CheckFuture::new(Purpose::CHECK, Arc::clone(&self.core), check);
        HoldFuture { state: State::Asked(asked, Some(holds)), dropped: Charged::AsUnsettled }
    }

    /// The holds that `check` asks for; `None` without any.
    #[inline]
    pub(crate) fn holds_of(&self, check: &Check) -> Option<RequestHolds> {
        if check.charges().iter().all(|charge| charge.hold.is_none()) {
            return None;
        }
        Some(RequestHolds::of(Arc::clone(&self.core.holds), check))
    }

    /// Whether the store has holds.
    pub(crate) fn has_holds(&self) -> bool {
        self.core.calls.store.has_holds()
    }

    pub(crate) fn has_alternatives(&self) -> bool {
        self.core.calls.store.has_alternatives()
    }
}

impl Core {
    /// Asks for a check of the limiter itself that holds. If the future is dropped, what it may hold is released.
    pub(super) async fn ask_for_hold(self: &Arc<Self>, check: Check, purpose: Purpose) -> Result<HoldAnswer, Error> {
        let observed = self.calls.observer.is_some().then(|| check.clone());
        let holds = RequestHolds::of(Arc::clone(&self.holds), &check);
        let asked = State::Asked(CheckFuture::unseen(Arc::clone(self), check, purpose), Some(holds));
        let held = HoldFuture { state: asked, dropped: Charged::Units(0) }.await?;
        self.calls.report_near_limits(observed.as_ref(), held.decision());
        Ok(held)
    }
}

/// The future of a [`HoldAnswer`], returned by [`Limiter::hold`](crate::Limiter::hold).
///
/// # Cancel safety
///
/// Nothing is sent before the first poll. If the future is dropped later, the units that the store may hold end as
/// those of a handle that is dropped, in the background. The hold is never sent again.
///
/// # Panics
///
/// Panics if the future is polled again after it has returned its result.
#[must_use = "nothing is held before the future is polled"]
pub struct HoldFuture {
    state: State,
    /// What is charged if the future is dropped without a verdict.
    dropped: Charged,
}

#[expect(clippy::large_enum_variant, reason = "nearly all futures are asked, and a box would cost each an allocation")]
enum State {
    /// The holds are there until the result is.
    Asked(CheckFuture, Option<RequestHolds>),
    /// The call was wrong.
    Failed(Error),
    Done,
}

fn into_held(holds: RequestHolds, decision: Decision) -> HoldAnswer {
    let (shared, open) = holds.into_open(&decision);
    shared.look_after();
    match decision.is_allowed() {
        true => HoldAnswer::Open(Hold::new(shared, decision, open)),
        false => HoldAnswer::Denied(decision),
    }
}

impl HoldFuture {
    fn failed(error: ConfigError) -> Self {
        Self { state: State::Failed(error.into()), dropped: Charged::AsUnsettled }
    }

    /// Lets the limiter's [local fallback](crate::Limiter::with_local_fallback) judge if the store gives no verdict, by
    /// this instance's share of the limit.
    ///
    /// The units of such a hold are held in this process. When it is settled, the store is charged for them as for
    /// everything that the fallback has admitted. If the limiter has no fallback, the result is an error of kind
    /// [`InvalidCall`](crate::ErrorKind::InvalidCall), also while the store is healthy, and nothing is held.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, policy::HoldSettings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
    /// let tokens =
    ///     Policy::per_minute("tokens", 100_000)?.with_holds(HoldSettings::new());
    /// let held = limiter.hold("tenant:3", &tokens, 1_500).fail_local().await?;
    /// # assert!(held.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_local(mut self) -> Self {
        self.state = match mem::replace(&mut self.state, State::Done) {
            State::Asked(check, holds) => State::Asked(check.fail_local(), holds),
            state => state,
        };
        self
    }
}

impl Future for HoldFuture {
    type Output = Result<HoldAnswer, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.get_mut().state;
        let result = match state {
            State::Asked(check, _) => ready!(Pin::new(check).poll(cx)),
            State::Failed(error) => Err(error.clone()),
            State::Done => panic!("a HoldFuture was polled after it had returned its result"),
        };
        let holds = if let State::Asked(_, holds) = state { holds.take() } else { None };
        *state = State::Done;
        Poll::Ready(result.map(|decision| match holds {
            Some(holds) => into_held(holds, decision),
            None => HoldAnswer::Denied(decision),
        }))
    }
}

impl Drop for HoldFuture {
    fn drop(&mut self) {
        // Without a verdict. The future that has returned a result is done.
        let dropped = self.dropped;
        if let State::Asked(check, Some(holds)) = &mut self.state
            && check.abandon()
        {
            holds.end(|_| dropped);
        }
    }
}

impl fmt::Debug for HoldFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HoldFuture")
    }
}
