//! Verdicts: what a store returns for a check.

use std::ops::{Deref, DerefMut};
use std::slice;

use smallvec::SmallVec;

use crate::check::{Charge, Check, first_of};
use crate::policy::Policy;

/// A store's judgement of a check, returned by [`Store::check`](crate::store::Store::check). The page of
/// [`store`](crate::store) shows a whole store that returns verdicts.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Whether the check passed: each charge fits, except for charges under [shadow](crate::Policy::with_shadow)
    /// policies, and of [alternatives](crate::store::Charge::has_alternative) one fits. Each charge that fits was then
    /// charged; of alternatives, the first one. If the check did not pass, nothing was charged.
    pub allowed: bool,
    /// Where the verdict comes from: [`Source::Store`], or [`Source::DenyCache`] for a remembered denial.
    pub source: Source,
    /// The time of the judgement by the store's clock, in microseconds since the Unix epoch.
    pub time_us: u64,
    /// One outcome per charge, in the check's order.
    pub outcomes: Outcomes,
}

/// The outcomes of the charges of a check, in the check's order: a slice, collected from an iterator.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outcomes(pub(crate) SmallVec<[Outcome; 1]>);

impl Verdict {
    /// The verdict of a store on a check of one charge under `policy`.
    #[inline]
    pub(crate) fn of_one(outcome: Outcome, policy: &Policy, time_us: u64) -> Self {
        let outcomes = Outcomes::of_one(outcome);
        Self { allowed: outcome.fits || policy.is_shadow(), source: Source::Store, time_us, outcomes }
    }

    /// The verdict of policies on a check of which the store gets nothing.
    #[cold]
    pub(crate) fn of_policies(check: &Check, allowed: bool) -> Self {
        let outcome_of =
            |charge: &Charge| if charge.policy.is_blocked() { Outcome::BLOCKED } else { Outcome::UNJUDGED };
        let outcomes = check.charges().iter().map(outcome_of).collect();
        Self { allowed, source: Source::Policy, time_us: 0, outcomes }
    }

    /// The verdict on a whole check, of that on the charges beside those under blocked policies.
    #[cold]
    pub(crate) fn with_blocked(self, check: &Check) -> Self {
        let mut judged = self.outcomes.0.into_iter();
        let mut outcome_of =
            |charge: &Charge| if charge.policy.is_blocked() { Some(Outcome::BLOCKED) } else { judged.next() };
        let outcomes = check.charges().iter().map_while(&mut outcome_of).collect();
        Self { outcomes, ..self }
    }

    /// The charges of `check` that were charged.
    pub(crate) fn charged<'a>(&'a self, check: &'a Check) -> impl Iterator<Item = &'a Charge> + Clone {
        let mut charged = first_of::charged();
        let is_charged = move |(charge, outcome): &(&Charge, &Outcome)| {
            charged(charge, outcome.fits) && self.allowed && charge.cost > 0
        };
        check.charges().iter().zip(&self.outcomes).filter(is_charged).map(|(charge, _)| charge)
    }
}

/// The result of one charge. All waits are microseconds from [`Verdict::time_us`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// Whether this charge fits.
    pub fits: bool,
    /// The largest cost that would pass now, after this check.
    pub available: u64,
    /// Time until the same cost fits; `None` if it fits or never can.
    pub retry_after_us: Option<u64>,
    /// Time until more becomes available; 0 if nothing is spent.
    pub next_us: u64,
    /// Time until the whole capacity is available again.
    pub reset_us: u64,
    /// Time until a [ban](crate::Policy::ban_after) ends; 0 without a ban. Nothing is available during a ban.
    pub ban_us: u64,
}

impl Outcome {
    /// That of a charge under a blocked policy, which never fits.
    const BLOCKED: Self = Self { fits: false, available: 0, retry_after_us: None, next_us: 0, reset_us: 0, ban_us: 0 };
    /// That of a charge beside one, which nothing has judged.
    const UNJUDGED: Self = Self { fits: true, ..Self::BLOCKED };
}

impl Outcomes {
    #[inline]
    pub(crate) fn of_one(outcome: Outcome) -> Self {
        Self(SmallVec::from_buf([outcome]))
    }
}

impl Deref for Outcomes {
    type Target = [Outcome];

    #[inline]
    fn deref(&self) -> &[Outcome] {
        &self.0
    }
}

impl DerefMut for Outcomes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Outcome] {
        &mut self.0
    }
}

impl FromIterator<Outcome> for Outcomes {
    #[inline]
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        Self(outcomes.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a Outcomes {
    type Item = &'a Outcome;
    type IntoIter = slice::Iter<'a, Outcome>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Outcomes {
    type Item = &'a mut Outcome;
    type IntoIter = slice::IterMut<'a, Outcome>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// Where a [`Decision`](crate::Decision) comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// The store gave no verdict, and the failure policy refuses.
    Closed,
    /// The process remembered a denial that still holds, without asking the store; see `RedisStoreBuilder::deny_cache`.
    DenyCache,
    /// The process has spent units of a block that it holds in the store, without asking the store; see
    /// [`Policy::with_lease`](crate::Policy::with_lease).
    Lease,
    /// The store gave no verdict, and the process judged by its share of the limit, see
    /// [`Limiter::with_local_fallback`](crate::Limiter::with_local_fallback).
    Local,
    /// The store gave no verdict, and the failure policy lets the request pass, or only
    /// [shadow policies](crate::Policy::with_shadow) apply to it.
    Open,
    /// More checks waited for the store than it answers within the deadline. Every failure policy refuses the request.
    /// See [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded).
    Overloaded,
    /// A policy of the check decides without the store: one is [blocked](crate::Policy::blocked), or the plan is
    /// [unlimited](crate::policy::Policies::unlimited).
    Policy,
    /// The queue of waiters in this process denied the request without asking the store: the wait is certain to take
    /// longer than the caller's `max_wait`, or `max_wait` has passed. See
    /// [`Limiter::acquire`](crate::Limiter::acquire).
    Queue,
    /// The store judged the check.
    Store,
    /// Too many callers of [`Limiter::acquire`](crate::Limiter::acquire) wait already, see
    /// [`Limiter::with_max_waiters`](crate::Limiter::with_max_waiters). The store was not asked.
    WaitersFull,
}
