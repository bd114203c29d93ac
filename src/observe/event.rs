//! The events of a limiter, as one enum.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    observe::{
        BreakerState, DecisionEvent, ObservedKey, OtherEvent, RefusalEvent, StoreFailure, Warning, other::Other,
    },
    policy::Policy,
};

/// An event of a limiter, of plans or of live limits, for [`Observer::on_event`](super::Observer::on_event).
///
/// What a service acts on has a variant with its data. All the rest is [`Other`](Self::Other), with a name and a line
/// for operators. The variants are the same with every set of features. An event of a feature that is off does not
/// occur.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, observe::{self, Event}};
///
/// let print = observe::from_fn(|event| match event {
///     Event::BreakerChange { to, .. } => println!("the breaker is {to}"),
///     Event::Warning(warning) => println!("{warning}"),
///     Event::Other(other) => println!("{}: {other}", other.name()),
///     _ => {}
/// });
/// let limiter = Limiter::new(MemoryStore::new()).with_observer(print);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The store, a remembered denial or the failure policy decided a check.
    ///
    /// Callers of a [`Limiter`](crate::Limiter) apply the failure policy themselves, so their checks without a verdict
    /// are only [failures](Self::StoreFailure). A check of cost 0, such as a [peek](crate::Limiter::peek), is not
    /// reported.
    Decision(DecisionEvent<'a>),
    /// A check got no verdict. In the middleware, the failure policy's decision follows.
    StoreFailure(StoreFailure<'a>),
    /// The circuit breaker changed its state.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use tollgate::observe::{BreakerState, Event, Observer};
    ///
    /// /// The state of the breaker, for a status page.
    /// struct Status(Mutex<(u64, BreakerState)>);
    ///
    /// impl Observer for Status {
    ///     fn on_event(&self, event: &Event<'_>) {
    ///         let Event::BreakerChange { to, sequence, .. } = event else {
    ///             return;
    ///         };
    ///         let mut latest = self.0.lock().expect("no panic under the lock");
    ///         if *sequence > latest.0 {
    ///             *latest = (*sequence, *to);
    ///         }
    ///     }
    /// }
    ///
    /// // A test of the observer makes the event itself.
    /// let (from, to) = (BreakerState::Closed, BreakerState::Open);
    /// let status = Status(Mutex::new((0, from)));
    /// status.on_event(&Event::BreakerChange { from, to, sequence: 1 });
    /// assert_eq!(status.0.lock().unwrap().1, BreakerState::Open);
    /// ```
    BreakerChange {
        /// The state before the change.
        from: BreakerState,
        /// The state after the change.
        to: BreakerState,
        /// The number of the change: the change with the higher number came later.
        ///
        /// Observers are called without a lock, so threads may report changes in another order than that in which they
        /// happened. To keep the current state, ignore a change whose number is below the highest one seen. All
        /// breakers of the process share one sequence, so a gap does not mean a lost change.
        sequence: u64,
    },
    /// The middleware refused a request without a check: the request has no usable key, its cost can never pass, or the
    /// layer is misconfigured. No decision follows.
    Refusal(RefusalEvent<'a>),
    /// The middleware would have refused a request without a check if it were not for shadow mode: see
    /// [`RateLimitLayer::with_shadow`](crate::RateLimitLayer::with_shadow). The request passes.
    WouldRefuse(RefusalEvent<'a>),
    /// A request has taken what a key has spent to the policy's [near limit](crate::Policy::with_near_limit). Reported
    /// once for each key and window, also for shadow policies. Each process sees the requests that it has sent; a
    /// process that tracks more than 16 384 keys at a time may repeat the event for some of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use tollgate::{Limiter, MemoryStore, Policy, observe::{Event, Observer}};
    ///
    /// #[derive(Default)]
    /// struct Warnings(Mutex<Vec<String>>);
    ///
    /// impl Observer for Warnings {
    ///     fn on_event(&self, event: &Event<'_>) {
    ///         if let Event::NearLimit { policy, spent, .. } = event {
    ///             let limit = policy.capacity();
    ///             let text = format!("{}: {spent} of {limit}", policy.name());
    ///             self.0.lock().unwrap().push(text);
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let warnings = Arc::new(Warnings::default());
    /// let limiter =
    ///     Limiter::new(MemoryStore::new()).with_observer(Arc::clone(&warnings));
    /// let daily = Policy::per_day("daily", 10)?;
    /// for _ in 0..10 {
    ///     let _ = limiter.check("alice", &daily, 1).await?;
    /// }
    /// assert_eq!(*warnings.0.lock().unwrap(), ["daily: 8 of 10"]);
    /// # Ok(())
    /// # }
    /// ```
    #[non_exhaustive]
    NearLimit {
        /// The policy. Its [capacity](Policy::capacity) is the most that can be spent at once.
        policy: &'a Policy,
        /// The key.
        key: ObservedKey<'a>,
        /// Units that the key has spent, with the request that came near the limit. Under a policy with
        /// [shards](Policy::with_shards), those of one shard.
        spent: u64,
    },
    /// A [hold](crate::Limiter::hold) of this process has ended: it was settled, released or dropped, or a settlement
    /// came too late or found no store. Holds that a crash leaves to the store are not reported.
    ///
    /// Reported once for each hold of a handle, also by a task in the background, and while a handle is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tollgate::observe::{Event, Observer};
    ///
    /// /// Counts holds that were dropped without a settlement: the code has
    /// /// forgotten to settle them.
    /// #[derive(Default)]
    /// struct Forgotten(AtomicU64);
    ///
    /// impl Observer for Forgotten {
    ///     fn on_event(&self, event: &Event<'_>) {
    ///         if let Event::HoldEnd { end: "dropped", .. } = event {
    ///             self.0.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     }
    /// }
    /// ```
    #[non_exhaustive]
    HoldEnd {
        /// The policy under which the units were held.
        policy: &'a Policy,
        /// The key.
        key: ObservedKey<'a>,
        /// The units that were held.
        held: u64,
        /// The units that its end was to charge: those of the settlement, or those that the policy charges for a hold
        /// that is not settled. If the end is `expired`, only what is above the charge at the end is charged. If it is
        /// `unanswered`, nothing is.
        actual: u64,
        /// How the hold has ended, in one word:
        ///
        /// | word | the hold |
        /// | --- | --- |
        /// | `dropped` | its handle was dropped without a settlement, and the units were charged or given back as the policy says |
        /// | `expired` | the store had ended it before: its time-to-live had passed, or it was reset |
        /// | `released` | was settled with 0 units |
        /// | `settled` | was settled |
        /// | `too_long` | had reached its [longest age](crate::policy::HoldSettings::with_longest), and was settled while its request went on |
        /// | `unanswered` | got no answer of a store within its time-to-live, or too many changes waited for one; the store ends it by itself, unless a change has reached it |
        end: &'static str,
    },
    /// The setup of a store or a layer looks wrong. Reported once for each store or layer and each kind of warning.
    Warning(Warning),
    /// An event that most observers only count or print: the [names](OtherEvent#names) are a table.
    Other(OtherEvent<'a>),
}

impl<'a> Event<'a> {
    /// A change of the breaker, with the next sequence number.
    pub(crate) fn breaker_change(from: BreakerState, to: BreakerState) -> Self {
        static LATEST: AtomicU64 = AtomicU64::new(0);
        Self::BreakerChange { from, to, sequence: LATEST.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    pub(crate) fn other(other: Other<'a>) -> Self {
        Self::Other(OtherEvent(other))
    }
}
