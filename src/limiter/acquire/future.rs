//! The futures of callers that wait for units, or with `Limiter::acquire_hold` for a hold.

use std::task::{Context, Poll};
use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::error::{ConfigError, Error, ErrorKind};
use crate::limiter::acquire::seat::{InOutage, QueueId};
use crate::limiter::acquire::waiter::{Delivery, never_fits};
use crate::limiter::acquire::{Acquire, forecast::after, place::Place};
use crate::limiter::check_future::{CheckFuture, Route};
use crate::limiter::{core::Core, handle::Limiter, hold::HoldAnswer};
use crate::{
    calls::NO_TIMERS, check::Check, decision::Decision, key::Key, observe::FailureEffect, policy::Policy,
    runtime::drivers::Driver, store::Answer,
};

/// The future of a [`Decision`] or of a [`HoldAnswer`], returned by [`Acquire::within`].
///
/// # Cancel safety
///
/// Nothing is sent before the first poll. The future may be dropped at any time: the next waiter takes its place, and a
/// hold that was made meanwhile is released.
///
/// # Panics
///
/// Panics if the future is polled again after it has returned its result.
#[must_use = "nothing is charged before the future is polled"]
pub struct AcquireFuture<T = Decision>(pub(super) Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>);

/// What a waiter gets: a decision, or a hold. Not exported.
pub trait Waited: Sized + 'static {
    /// The answer of a waiter.
    fn from_delivery(delivery: Delivery) -> Result<Self, Error>;
}

impl Waited for Decision {
    fn from_delivery(delivery: Delivery) -> Result<Self, Error> {
        delivery.outcome
    }
}

impl<T: Waited> Acquire<T> {
    /// Waits for at most `max_wait`. See [`Limiter::acquire`].
    ///
    /// With a `max_wait` of zero, the units are charged if they are available now and no other caller waits. A check
    /// that is on its way when `max_wait` ends, or is about to be sent, is awaited: for at most 0.1 s and the store's
    /// [deadline](crate::store::Store::deadline).
    ///
    /// # Errors
    ///
    /// The future resolves to an [`Error`] if the store gave no verdict until `max_wait` had passed, or
    /// if the check may have been charged without a verdict. Errors of the setup end the wait at once: kind
    /// [`StoreMisconfigured`](crate::ErrorKind::StoreMisconfigured), also for a runtime without timers, kind
    /// [`BadKey`](crate::ErrorKind::BadKey), and kind [`InvalidCall`](crate::ErrorKind::InvalidCall) for
    /// [`fail_local`](Self::fail_local) without a fallback.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the first poll. Dropping the future leaves the queue and wakes the next waiter. What was
    /// charged just then for a caller that is gone goes to the next waiters, if there are any.
    ///
    /// If the store may have made a [hold](crate::Limiter::acquire_hold) without an answer, or for a caller that is
    /// gone, the hold is released in the background.
    pub fn within(self, max_wait: Duration) -> AcquireFuture<T> {
        AcquireFuture(Box::pin(async move { T::from_delivery(self.run(max_wait).await?) }))
    }

    /// As [`within`](Self::within). Also says when the units were charged.
    pub(crate) async fn charged_within(self, max_wait: Duration) -> Result<(T, Instant), Error> {
        let delivery = self.run(max_wait).await?;
        let charged = delivery.charged;
        T::from_delivery(delivery).map(|answer| (answer, charged))
    }
}

impl<T> Acquire<T> {
    /// Waits for the units, and makes a hold if `holds`.
    pub(super) async fn run(self, max_wait: Duration) -> Result<Delivery, ConfigError> {
        let Self { core, key, policy, cost, further, in_outage, shares_pauses, holds, .. } = self;
        let purpose = in_outage.purpose();
        if purpose.uses_fallback() && core.calls.fallback.is_none() {
            return Err(ConfigError::local_without_fallback());
        }
        if holds && !core.calls.store.has_holds() {
            return Err(ConfigError::store_without_holds());
        }
        let check = match holds {
            true => Check::hold(key.clone(), &policy, cost),
            false => Check::new(key.clone(), &policy, cost),
        };
        let check = further.add_to(check, &key);
        core.validate(&check)?;
        if !holds {
            check.refuse_holds()?;
        }
        let is_delayed = policy.delays(cost) || further.delaying().is_some();
        if policy.is_shadow() && !holds && !is_delayed {
            return Ok(Delivery::of(CheckFuture::new(purpose, core, check).await));
        }
        let span = core.calls.start_span(&check);
        let result = if !is_delayed || never_fits(&policy, cost) || further.never_fit() {
            // No wait changes the outcome.
            match holds {
                true => Delivery::of_held(core.ask_for_hold(check, purpose).await),
                false => Delivery::of(core.ask(check, purpose).await),
            }
        } else if !Driver::Timers.is_there() {
            Delivery::of(Err(Error::new(ErrorKind::StoreMisconfigured, NO_TIMERS)))
        } else if !holds
            && !shares_pauses
            && let Some(decision) = core.charge_at_once(&check, in_outage)
        {
            Delivery::of(Ok(decision))
        } else {
            let place = Place {
                core: Arc::clone(&core),
                id: QueueId { key, policy, in_outage },
                cost,
                further,
                shares_pauses,
                holds,
                deadline: after(Instant::now(), max_wait),
                grace: Duration::ZERO,
                ticket: None,
                watches: false,
                seat: None,
                delivery: None,
            };
            place.wait().await
        };
        if let Some(span) = span {
            if let Err(error) = &result.outcome {
                span.failed(error, FailureEffect::Error);
            }
            span.end(result.outcome.as_ref().ok());
        }
        Ok(result)
    }
}

impl Core {
    /// Charges a caller that need not wait, without a task: nobody waits for the key, and the store answers at once
    /// that the units are there. `None` if the caller has to join the queue; then nothing is charged.
    pub(super) fn charge_at_once(self: &Arc<Self>, check: &Check, in_outage: InOutage) -> Option<Decision> {
        let charge = check.charges().first()?;
        let id = QueueId { key: charge.key.clone(), policy: charge.policy.clone(), in_outage };
        let counts_denials = check.charges().iter().any(|charge| charge.policy.counts_denials());
        if counts_denials || self.route(check) != Route::Direct || !self.queues.is_quiet(&id) {
            return None;
        }
        let verdict = match self.calls.store.check(check) {
            Answer::Ready(verdict) => verdict.ok()?,
            Answer::Pending(unsent) => {
                unsent.put_back();
                return None;
            }
        };
        if !verdict.allowed {
            self.queues.learn(&id, &Decision::new(&mut check.clone(), &verdict));
            return None;
        }
        self.queues.charged_beside(&id);
        let decision = self.on_verdict(&mut check.clone(), &verdict, in_outage.purpose(), None);
        self.calls.report_near_limits(Some(check), &decision);
        Some(decision)
    }
}

impl<T> Future for AcquireFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for AcquireFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcquireFuture")
    }
}

impl Limiter {
    /// Holds `cost` units of `key` under `policy`, and waits until they fit: a slot of a [concurrency
    /// limit](Policy::concurrent), or units whose cost is known later. [`hold`](Self::hold) does not wait.
    ///
    /// Callers wait in the queue of [`acquire`](Self::acquire), first come, first served. The first of them asks again
    /// as soon as a hold of this process ends. The end of a hold of another process is noticed when it asks next, at
    /// the latest after the [typical duration](crate::policy::HoldSettings::with_typical_duration) of a hold, 1 s by
    /// default.
    ///
    /// A hold may end at any time, so a caller is denied before its time is over only if units that are charged, and
    /// not those that are held, keep it back for longer.
    ///
    /// Under a policy that [bans](Policy::ban_after), each of these questions that is denied counts as a denial. So
    /// callers that wait for holds of others lead to a ban: wait under policies without one.
    ///
    /// # Examples
    ///
    /// At most 5 calls to another service at once, in all processes together:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, limiter::HoldAnswer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let calls = Policy::concurrent("calls", 5)?;
    /// match limiter
    ///     .acquire_hold("maps-api", &calls, 1)
    ///     .within(Duration::from_secs(10))
    ///     .await?
    /// {
    ///     HoldAnswer::Open(slot) => {
    ///         // The call is made here.
    ///         slot.release().await?;
    ///     }
    ///     HoldAnswer::Denied(_) => println!("no slot within 10 s"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_hold(&self, key: impl Into<Key>, policy: &Policy, cost: u64) -> Acquire<HoldAnswer> {
        Acquire::new(self, key.into(), policy, cost, true)
    }
}

impl Waited for HoldAnswer {
    fn from_delivery(Delivery { outcome, hold, .. }: Delivery) -> Result<Self, Error> {
        outcome.map(|decision| hold.map_or(HoldAnswer::Denied(decision), |hold| HoldAnswer::Open(hold.move_here())))
    }
}
