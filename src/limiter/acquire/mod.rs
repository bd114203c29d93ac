//! Waiting for units: `Limiter::acquire` and `Limiter::acquire_hold`.
//!
//! Callers that wait for one key form a queue, and only its head asks the store, at the time that the store gave. The
//! queue is served by a dispatcher: a task of its own as soon as anybody waits. The future of a caller only has a place
//! in the queue.

mod dispatcher;
mod forecast;
mod future;
mod paused_keys;
mod place;
mod queue;
pub(super) mod queues;
mod request;
mod rivals;
mod seat;
mod waiter;

use std::{fmt, marker::PhantomData, sync::Arc};

use self::{queues::Queues, seat::InOutage, waiter::Further};
use crate::limiter::{core::Core, handle::Limiter};
use crate::{decision::Decision, key::Key, policy::Policy};

pub use self::future::AcquireFuture;
pub(crate) use self::paused_keys::LONGEST_PAUSE;

/// A request for units that may wait: for a [`Decision`], returned by [`Limiter::acquire`], or for a
/// [`HoldAnswer`](crate::limiter::HoldAnswer), returned by [`Limiter::acquire_hold`]. It does nothing before
/// [`within`](Self::within) says for how long.
///
/// # Examples
///
/// See [`Limiter::acquire`].
#[must_use = "call `within(max_wait)` and await the result"]
pub struct Acquire<T = Decision> {
    core: Arc<Core>,
    key: Key,
    policy: Policy,
    cost: u64,
    further: Further,
    in_outage: InOutage,
    shares_pauses: bool,
    /// Whether the units are held.
    holds: bool,
    answer: PhantomData<fn() -> T>,
}

impl Limiter {
    /// Charges `cost` units to `key` under `policy`, and waits until they fit: for jobs and clients of another
    /// service, which would rather be late than refused.
    ///
    /// # Order
    ///
    /// Callers in this process that wait for the same key and policy are served first come, first served; a later and
    /// smaller request does not overtake. Only the first of them asks the store, when the store has said that the units
    /// will be there, so a process that is alone needs about one call for each admission, whatever the number of
    /// waiters is. Where more units are available, one call charges for several waiters.
    ///
    /// A caller is charged in its turn, whether or not its future is polled then. Callers whose futures are not polled
    /// for a while, such as those of a `buffer_unordered` whose results are used slowly, go on together afterwards,
    /// faster than the rate. So give each caller a task of its own.
    ///
    /// Several processes take turns: each asks at most once when units come back, at times that differ by up to 3 ms,
    /// and lets the others go first after it has won. There is no order across processes.
    ///
    /// # When the wait is too long
    ///
    /// The result is a denial at once if the wait is certain to be longer than `max_wait`, judged by the last decision
    /// on the key and by the units of those who wait ahead. Otherwise the denial comes when `max_wait` has passed. Its
    /// [`source`](crate::Decision::source) is the [queue](crate::decision::Source::Queue) or the store, and
    /// [`retry_after`](crate::Decision::retry_after) is the earliest time at which the units may be there, behind the
    /// present waiters. A denial without [policies](crate::Decision::policies) means that no decision on the key is
    /// known yet; as the response of a handler, it is a 503.
    ///
    /// The number of waiters is [bounded](Self::with_max_waiters). A cost above the policy's
    /// [capacity](Policy::capacity) does not wait, and neither does a cost of 0 without a
    /// [further policy](Acquire::and): the store is asked at once, as by [`check`](Self::check).
    ///
    /// A [reset](Self::reset) by this process wakes the waiters. A reset by another process, or a store that has lost
    /// its counts, is noticed when the first of them asks next, at the time that the store gave before.
    ///
    /// # When the store fails
    ///
    /// The first caller of the queue asks again every 10 ms at first and every 250 ms later, until its `max_wait` has
    /// passed. Then the result is the store's error, to which the caller applies a
    /// [`FailurePolicy`](crate::FailurePolicy). A check whose fate is unknown is never sent again: its error is
    /// returned at once.
    ///
    /// # Cost of a wait
    ///
    /// A caller that need not wait, and is alone with its key, costs little more than a check. Where callers wait, a
    /// task of the current runtime asks for all of a key. Timers tick in milliseconds, which would add up where
    /// admissions follow each other every 0.5 to 250 ms. There, the task sleeps for the last 1.5 ms with a thread for
    /// blocking work, and yields in a loop for the last 0.2 ms: at 50 checks a second, about a hundredth of a core. At
    /// most two tasks of a process do so at a time; the others are up to a millisecond late.
    ///
    /// # Choosing a policy
    ///
    /// A [token bucket](crate::Algorithm::TokenBucket) gives an even flow. Its burst should cover the round trip to the
    /// store: with a burst of 1, the next check is sent after the reply to the last one, so no more than one unit in
    /// each round trip can be spent. Under a policy that bans or counts denials, the wait begins with the reply to
    /// the last check, and each check is sent a millisecond later, because one that is too early would count.
    /// Denials of other processes count all the same, so such a policy is no good choice for several processes.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Algorithm, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let upstream = Policy::per_second("upstream", 50)?
    ///     .with_algorithm(Algorithm::TokenBucket)
    ///     .with_burst(1);
    ///
    /// for _ in 0..3 {
    ///     let turn = limiter.acquire("maps-api", &upstream, 1);
    ///     let decision = turn.within(Duration::from_secs(10)).await?;
    ///     if decision.is_allowed() {
    ///         println!("now is the time for one call");
    ///     } else {
    ///         let wait = decision.retry_after();
    ///         println!("put the job back; it would take {wait:?} at least");
    ///     }
    ///     # assert!(decision.is_allowed());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "until_ready")]
    #[doc(alias = "wait")]
    pub fn acquire(&self, key: impl Into<Key>, policy: &Policy, cost: u64) -> Acquire {
        Acquire::new(self, key.into(), policy, cost, false)
    }

    /// Bounds the callers that wait in [`acquire`](Self::acquire): at most `per_key` for one key and policy, and at
    /// most `in_all`. Further callers are denied at once, with the source
    /// [`WaitersFull`](crate::decision::Source::WaitersFull).
    ///
    /// Defaults to 10 000 for a key and 100 000 in all, which take less than 100 MB. Earlier clones of the limiter keep
    /// their queues and their bounds.
    ///
    /// A bound of 0 is a mistake, because then no caller could wait; [`validated`](Self::validated) returns it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::new(MemoryStore::new())
    ///     .with_max_waiters(100, 1_000)
    ///     .validated()?;
    /// # let _ = limiter;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_max_waiters(mut self, per_key: usize, in_all: usize) -> Self {
        if per_key == 0 || in_all == 0 {
            return self.mistaken("no caller could wait with a bound of 0 waiters; use at least 1");
        }
        let core = Arc::make_mut(&mut self.core);
        core.queues = Arc::new(Queues::new(per_key, in_all));
        core.connect_holds();
        self
    }
}

impl<T> Acquire<T> {
    fn new(limiter: &Limiter, key: Key, policy: &Policy, cost: u64, holds: bool) -> Self {
        Self {
            core: Arc::clone(&limiter.core),
            key,
            policy: policy.clone(),
            cost,
            further: Further::default(),
            in_outage: InOutage::AskAgain,
            shares_pauses: false,
            holds,
            answer: PhantomData,
        }
    }

    /// Also charges `cost` units of the same key under a further policy, for an upstream with several limits, such as
    /// requests and tokens a minute. Either all are charged or none, and the caller waits until all fit. Neither a
    /// [shadow policy](Policy::with_shadow) nor a cost of 0 delays it.
    ///
    /// Callers wait in the queue of the first policy, in one order with those that have no further policy. So let the
    /// first policy be the one that delays most callers: a wait that is certain to be too long is denied at once for
    /// the first policy, and for a further one when the caller is the first in the queue. The end of a
    /// [hold](Limiter::hold) under a further policy is noticed when that caller asks next, within a second. Units that
    /// are charged for a caller that is gone do not go to a waiter with further policies.
    ///
    /// A mistake, such as two policies of one name, is an error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall)
    /// of the future.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::new(MemoryStore::new());
    /// let (tokens, requests) = (
    ///     Policy::per_minute("tokens", 90_000)?,
    ///     Policy::per_minute("requests", 500)?,
    /// );
    /// let turn = limiter.acquire("account-1", &tokens, 1_200).and(&requests, 1);
    /// let turn = turn.within(Duration::from_secs(30)).await?;
    /// assert!(turn.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn and(mut self, policy: &Policy, cost: u64) -> Self {
        self.further.add(policy, cost);
        self
    }

    /// Lets the limiter's [local fallback](Limiter::with_local_fallback) judge while the store gives no verdict.
    /// Waiters then wait for this instance's share of the limit.
    ///
    /// If the limiter has no fallback, the result is an error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall),
    /// and nothing is charged.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
    /// let quota = Policy::per_day("quota", 9_500)?;
    /// let decision = limiter
    ///     .acquire("key1", &quota, 100)
    ///     .fail_local()
    ///     .within(Duration::from_secs(1))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_local(mut self) -> Self {
        self.in_outage = InOutage::Fallback;
        self
    }
}

impl<T> fmt::Debug for Acquire<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("policy", &self.policy).field("cost", &self.cost).finish_non_exhaustive()
    }
}
