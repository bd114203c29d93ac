//! The count of one key under one policy, whatever its algorithm.

use crate::algorithm::{
    Counter, fixed_window::FixedWindow, held::Held, sliding_window_counter::SlidingWindowCounter,
    sliding_window_log::SlidingWindowLog, token_bucket::TokenBucket,
};
use crate::policy::{Algorithm, Policy};
use crate::verdict::Outcome;

/// What one key has spent under one policy.
#[derive(Clone, Debug)]
pub(crate) enum CountState {
    FixedWindow(FixedWindow),
    SlidingWindowCounter(SlidingWindowCounter),
    SlidingWindowLog(SlidingWindowLog),
    TokenBucket(TokenBucket),
}

/// Runs `$call` on the counter in `$state`, by static dispatch.
macro_rules! dispatch {
    ($state:expr, $counter:ident => $call:expr) => {
        match $state {
            CountState::FixedWindow($counter) => $call,
            CountState::SlidingWindowCounter($counter) => $call,
            CountState::SlidingWindowLog($counter) => $call,
            CountState::TokenBucket($counter) => $call,
        }
    };
}

impl CountState {
    pub(crate) fn new(policy: &Policy) -> Self {
        match policy.algorithm() {
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingWindowCounter => Self::SlidingWindowCounter(SlidingWindowCounter::default()),
            Algorithm::SlidingWindowLog => Self::SlidingWindowLog(SlidingWindowLog::default()),
            Algorithm::TokenBucket => Self::TokenBucket(TokenBucket::default()),
        }
    }

    /// Evaluates and commits in one pass, for a check with a single charge. Inlined, so that the outcome stays in
    /// registers until it is written into the verdict.
    #[inline(always)]
    pub(crate) fn evaluate_and_commit(&mut self, policy: &Policy, now: u64, cost: u64) -> Outcome {
        dispatch!(self, counter => {
            let advanced = counter.advance_to(policy, now);
            let fits = cost == 0 || counter.fits(&advanced, policy, now, cost);
            commit(counter, advanced, policy, now, cost, fits, Admission::of(fits))
        })
    }

    /// Evaluates: returns whether `cost` fits. Changes nothing.
    pub(crate) fn evaluate(&self, policy: &Policy, now: u64, cost: u64) -> bool {
        cost == 0 || dispatch!(self, counter => counter.fits(&counter.advance_to(policy, now), policy, now, cost))
    }

    /// Commits: charges `cost` if the whole check is admitted or rejections count. Returns the outcome.
    pub(crate) fn commit(&mut self, policy: &Policy, now: u64, cost: u64, fits: bool, admission: Admission) -> Outcome {
        dispatch!(self, counter => {
            commit(counter, counter.advance_to(policy, now), policy, now, cost, fits, admission)
        })
    }

    /// Evaluates beside open holds: returns whether `cost` fits. Changes nothing.
    pub(crate) fn evaluate_beside(&self, policy: &Policy, now: u64, cost: u64, held: Held) -> bool {
        cost == 0 || held.asked(policy, cost).is_some_and(|asked| self.evaluate(policy, now, asked))
    }

    /// The outcome of a charge beside open holds.
    pub(crate) fn outcome_beside(&self, policy: &Policy, now: u64, cost: u64, fits: bool, held: Held) -> Outcome {
        let denied = (!fits && cost <= policy.capacity()).then_some(cost);
        dispatch!(self, counter => {
            let advanced = counter.advance_to(policy, now);
            let plain = counter.report(&advanced, policy, now, fits, None);
            held.outcome(policy, now, plain, denied, |cost| counter.wait(&advanced, policy, now, cost))
        })
    }

    /// Charges units at `now`, whether or not they fit. More than [`Policy::MAX_LIMIT`] affect no decision, and count
    /// as that many.
    pub(crate) fn settle(&mut self, policy: &Policy, now: u64, units: u64) {
        let units = units.min(Policy::MAX_LIMIT);
        if units > 0 {
            dispatch!(self, counter => counter.settle(counter.advance_to(policy, now), policy, now, units));
        }
    }

    /// Takes up to `units` charged units off the count. Returns how many were taken off.
    pub(crate) fn credit(&mut self, policy: &Policy, now: u64, units: u64) -> u64 {
        let units = units.min(Policy::MAX_LIMIT);
        dispatch!(self, counter => counter.credit(counter.advance_to(policy, now), policy, now, units))
    }

    /// The time in which `units` leave a count under `policy`, or longer.
    pub(crate) fn span(&self, policy: &Policy, units: u64) -> u64 {
        dispatch!(self, counter => span_of(counter, policy, units))
    }

    /// The largest cost that fits now.
    pub(crate) fn available(&self, policy: &Policy, now: u64) -> u64 {
        dispatch!(self, counter => counter.report(&counter.advance_to(policy, now), policy, now, true, None).available)
    }

    /// The time from which this state equals a fresh one.
    pub(crate) fn idle_at(&self, policy: &Policy) -> u64 {
        dispatch!(self, counter => counter.idle_at(policy))
    }

    /// The time from which the state is worth less than the memory that it takes.
    pub(crate) fn stale_at(&self, policy: &Policy) -> u64 {
        dispatch!(self, counter => counter.stale_at(policy))
    }
}

/// The result of evaluating a whole check, for one of its charges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Admission {
    /// All charges fit.
    Admitted,
    /// A ban denies the check. The check is then not counted.
    Banned,
    /// A charge does not fit. The check is counted by policies that count denials.
    Rejected,
}

impl Admission {
    pub(crate) fn of(allowed: bool) -> Self {
        if allowed { Self::Admitted } else { Self::Rejected }
    }
}

/// See [`Counter::span`].
fn span_of<C: Counter>(_: &C, policy: &Policy, units: u64) -> u64 {
    C::span(policy, units)
}

/// Commits to a counter. `fits` is the result of the evaluation, and `advanced` the state from it.
#[inline(always)]
fn commit<C: Counter>(
    counter: &mut C,
    mut advanced: C::Advanced,
    policy: &Policy,
    now: u64,
    cost: u64,
    mut fits: bool,
    admission: Admission,
) -> Outcome {
    let capacity = policy.capacity();
    let is_charged = match admission {
        Admission::Admitted => true,
        Admission::Rejected => policy.denials_counted(),
        Admission::Banned => false,
    };
    if is_charged && cost > 0 && cost <= capacity {
        advanced = counter.charge(advanced, policy, now, cost);
        // After a counted denial, the cost of this charge may no longer fit.
        fits = fits && (admission == Admission::Admitted || counter.fits(&advanced, policy, now, cost));
    }
    let denied = (!fits && cost <= capacity).then_some(cost);
    counter.report(&advanced, policy, now, fits, denied)
}
