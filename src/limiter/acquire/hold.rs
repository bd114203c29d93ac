//! Waiting for a hold: `Limiter::acquire_hold`.

use std::time::Duration;

use crate::{
    key::Key,
    limiter::{
        acquire::{future::AcquireFuture, handle::Acquire, waiter::Delivery},
        handle::Limiter,
        hold::HoldAnswer,
    },
    policy::Policy,
};

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
    pub fn acquire_hold(&self, key: impl Into<Key>, policy: &Policy, cost: u64) -> Acquire<HoldAnswer> {
        Acquire::new(self, key.into(), policy, cost, true)
    }
}

impl Acquire<HoldAnswer> {
    /// Waits for at most `max_wait`. With a `max_wait` of zero, the units are held if they are available now and no
    /// other caller waits.
    ///
    /// # Errors
    ///
    /// As for units that are charged. If the store may have made a hold without an answer, it is released in the
    /// background. An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if the policy or the store has no
    /// holds, or the cost is 0.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the first poll. Dropping the future leaves the queue and wakes the next waiter. A hold
    /// that was made for a caller that is gone is released.
    pub fn within(self, max_wait: Duration) -> AcquireFuture<HoldAnswer> {
        AcquireFuture(Box::pin(async move {
            let Delivery { outcome, hold } = self.run(max_wait).await?;
            outcome.map(|decision| hold.map_or(HoldAnswer::Denied(decision), |hold| HoldAnswer::Open(hold.move_here())))
        }))
    }
}
