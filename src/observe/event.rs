//! The events of a limiter, as one enum.

use std::time::Duration;

use crate::{
    observe::{
        AbandonmentEvent, BreakerChange, CountChangeEvent, DecisionEvent, ExemptionEvent, HoldEndEvent, LimitsChange,
        NearLimit, PlanFallback, PlanLookup, RefusalEvent, ResetEvent, StoreFailure, Warning,
    },
    policy::Policy,
};

/// An event of a limiter, of plans or of live limits, for [`Observer::on_event`](super::Observer::on_event).
///
/// The variants are the same with every set of features. An event of a feature that is off does not occur.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, observe::{self, Event}};
///
/// let print = observe::from_fn(|event| match event {
///     Event::BreakerChange(change) => println!("the breaker is {}", change.to),
///     Event::Warning(warning) => println!("{warning}"),
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
    /// A call of the store ended. One call may contain several checks.
    Batch(Batch),
    /// The breaker changed its state. Two threads may report two changes in either order; see
    /// [`BreakerChange::sequence`].
    BreakerChange(BreakerChange),
    /// The middleware refused a request without a check: the request has no usable key, its cost can never pass, or the
    /// layer is misconfigured. No decision follows.
    Refusal(RefusalEvent<'a>),
    /// The middleware would have refused a request without a check if it were not for shadow mode: see
    /// [`RateLimitLayer::with_shadow`](crate::RateLimitLayer::with_shadow). The request passes.
    WouldRefuse(RefusalEvent<'a>),
    /// A request has taken what a key has spent to the policy's [near limit](crate::Policy::with_near_limit). Reported
    /// once for each key and window, also for shadow policies. Each process sees the requests that it has sent; a
    /// process that tracks more than 16 384 keys at a time may repeat the event for some of them.
    NearLimit(NearLimit<'a>),
    /// The middleware let a request pass without a check: its route is exempt, or it has no key. A request that another
    /// policy of the layer limits is reported as a decision instead.
    Exemption(ExemptionEvent),
    /// A check was dropped before its verdict, for example because the client hung up or an outer timeout passed. No
    /// decision follows, and the check may have been charged.
    ///
    /// A check that was never polled was not sent, and a peek charges nothing; neither is reported.
    Abandonment(AbandonmentEvent<'a>),
    /// A [hold](crate::Limiter::hold) of this process has ended: it was settled, released or dropped, or a settlement
    /// came too late or found no store. Holds that a crash leaves to the store are not reported.
    ///
    /// Reported once for each hold of a handle, also by a task in the background, and while a handle is dropped.
    HoldEnd(HoldEndEvent<'a>),
    /// A [`Limiter::reset`](crate::Limiter::reset) ended. A reset that is dropped before its end is not reported.
    Reset(ResetEvent<'a>),
    /// A count was changed by hand: a [`Limiter::ban`](crate::Limiter::ban), [`unban`](crate::Limiter::unban),
    /// [`record`](crate::Limiter::record) or [`credit`](crate::Limiter::credit) ended. A call that is refused as
    /// invalid, or dropped before its end, is not reported.
    CountChange(CountChangeEvent<'a>),
    /// A full [`MemoryStore`](crate::MemoryStore) dropped a live count for a new key, so the client of that count
    /// starts with a fresh budget. Reported for each dropped count. A flood of new keys drops many counts, so an
    /// observer should return fast.
    Eviction(EvictionEvent<'a>),
    /// A look-up of a plan ended (feature `plans`). Reported in the task of the look-up.
    PlanLookup(PlanLookup<'a>),
    /// A request had no current plan, so the last plan of its key or the default plan applied (feature `plans`).
    PlanFallback(PlanFallback),
    /// The setup of a store or a layer looks wrong. Reported once for each store or layer and each kind of warning.
    Warning(Warning),
    /// The limits of a `LiveLimits` were replaced, or new limits were refused (feature `serde`). Reported to the
    /// observers of `LiveLimits::with_observer`, on the thread that has replaced the limits, after the limits are in
    /// force.
    LimitsChange(LimitsChange),
}

/// A call of a store.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// Number of checks that shared the call.
    pub checks: usize,
    /// Number of charges of these checks.
    pub charges: usize,
    /// Time from sending the call to its reply, or to dropping it.
    pub elapsed: Duration,
    /// Whether the store sent a usable reply.
    pub answered: bool,
}

/// A live count that a full [`MemoryStore`](crate::MemoryStore) has dropped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EvictionEvent<'a> {
    /// The policy of the count. If the count is of denials, its name ends in `(ban)`.
    pub policy: &'a Policy,
    /// Units that the count had recorded. Its key may now spend them again.
    pub spent: u32,
}

impl<'a> EvictionEvent<'a> {
    pub(crate) fn new(policy: &'a Policy, spent: u32) -> Self {
        Self { policy, spent }
    }
}
