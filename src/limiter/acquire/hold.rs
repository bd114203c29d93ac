//! Waiting for a hold: `Limiter::acquire_hold`.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    error::Error,
    key::Key,
    limiter::{
        acquire::{handle::Acquire, waiter::Delivery},
        handle::Limiter,
        hold::HoldAnswer,
    },
    policy::Policy,
};

/// A request for a hold that may wait, returned by [`Limiter::acquire_hold`]. It does nothing before
/// [`within`](Self::within) says for how long.
///
/// # Examples
///
/// See [`Limiter::acquire_hold`].
#[must_use = "call `within(max_wait)` and await the result"]
#[derive(Debug)]
pub struct AcquireHold(Acquire);

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
    /// match limiter.acquire_hold("maps-api", &calls, 1).within(Duration::from_secs(10)).await? {
    ///     HoldAnswer::Open(slot) => {
    ///         // The call is made here.
    ///         slot.release().await?;
    ///     }
    ///     HoldAnswer::Denied(_) => println!("no slot within 10 s"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_hold(&self, key: impl Into<Key>, policy: &Policy, cost: u32) -> AcquireHold {
        AcquireHold(Acquire { holds: true, ..self.acquire(key, policy, cost) })
    }
}

impl AcquireHold {
    /// Lets the limiter's [local fallback](Limiter::with_local) judge while the store gives no verdict, as
    /// [`Acquire::fail_local`].
    pub fn fail_local(self) -> Self {
        Self(self.0.fail_local())
    }

    /// Also charges `cost` units of the same key under a further policy, as [`Acquire::and`]: at most so many calls at
    /// once, and so many a minute.
    pub fn and(self, policy: &Policy, cost: u32) -> Self {
        Self(self.0.and(policy, cost))
    }

    /// Sets whether this process heeds the pauses of the fleet.
    pub(crate) fn share_pauses(self, share: bool) -> Self {
        Self(self.0.share_pauses(share))
    }

    /// Waits for at most `max_wait`. With a `max_wait` of zero, the units are held if they are available now and no
    /// other caller waits.
    ///
    /// # Errors
    ///
    /// As [`Acquire::within`]. If the store may have made a hold without an answer, it is released in the background.
    /// An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if the policy or the store has no holds, or the
    /// cost is 0.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the first poll. Dropping the future leaves the queue and wakes the next waiter. A hold
    /// that was made for a caller that is gone is released.
    pub fn within(self, max_wait: Duration) -> AcquireHoldFuture {
        let acquire = self.0;
        AcquireHoldFuture(Box::pin(async move {
            let Delivery { outcome, hold } = acquire.run(max_wait).await?;
            outcome.map(|decision| hold.map_or(HoldAnswer::Denied(decision), |hold| HoldAnswer::Open(hold.move_here())))
        }))
    }
}

/// The future of a [`HoldAnswer`], returned by [`AcquireHold::within`].
///
/// # Cancel safety
///
/// Nothing is sent before the first poll. The future may be dropped at any time: the next waiter takes its place, and a
/// hold that was made meanwhile is released.
///
/// # Panics
///
/// Panics if the future is polled again after it has returned its result.
#[must_use = "nothing is held before the future is polled"]
pub struct AcquireHoldFuture(Pin<Box<dyn Future<Output = Result<HoldAnswer, Error>> + Send>>);

impl Future for AcquireHoldFuture {
    type Output = Result<HoldAnswer, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for AcquireHoldFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcquireHoldFuture")
    }
}
