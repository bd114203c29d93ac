//! Waiting for a hold: `Limiter::acquire_hold`.

use crate::{
    error::Error,
    key::Key,
    limiter::{
        acquire::{future::Waited, handle::Acquire, waiter::Delivery},
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

impl Waited for HoldAnswer {
    fn from_delivery(Delivery { outcome, hold }: Delivery) -> Result<Self, Error> {
        outcome.map(|decision| hold.map_or(HoldAnswer::Denied(decision), |hold| HoldAnswer::Open(hold.move_here())))
    }
}
