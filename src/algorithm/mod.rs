//! The algorithms as pure arithmetic: no I/O, no clock.
//!
//! Times are microseconds since the epoch. The same steps, with the same results, are in `lua/`; these are the oracle.

mod bucket;
mod counter;
mod fixed;
mod log;

use crate::{
    policy::{Algorithm, Policy},
    verdict::Outcome,
};

/// What one key has spent under one policy.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Bucket(bucket::Bucket),
    Counter(counter::Counter),
    Fixed(fixed::Fixed),
    Log(log::Log),
}

/// What every algorithm can do.
trait Count {
    /// What the passing of time has made of the state: found once, for all that a check asks.
    type Rolled;

    /// The state as it is at `now`. Nothing changes.
    fn rolled(&self, policy: &Policy, now: u64) -> Self::Rolled;
    /// Whether `cost` may pass now.
    fn fits(&self, rolled: &Self::Rolled, policy: &Policy, now: u64, cost: u32) -> bool;
    /// Spends `cost`, which is at most the capacity.
    fn charge(&mut self, rolled: Self::Rolled, policy: &Policy, now: u64, cost: u32) -> Self::Rolled;
    /// Where the count stands now, and how long a `refused` cost has to wait.
    fn report(&self, rolled: &Self::Rolled, policy: &Policy, now: u64, refused: Option<u32>) -> Report;
    /// The instant from which this state is the same as a fresh one.
    fn idle_at(&self, policy: &Policy) -> u64;
}

/// Calls what is written once for all algorithms with the one that `$state` is: no table of functions in between.
macro_rules! each {
    ($state:expr, $count:ident => $call:expr) => {
        match $state {
            State::Bucket($count) => $call,
            State::Counter($count) => $call,
            State::Fixed($count) => $call,
            State::Log($count) => $call,
        }
    };
}

/// What can be said about a count. Waits are microseconds.
struct Report {
    /// The largest cost that fits now.
    available: u32,
    /// Until the refused cost fits if nobody else spends.
    retry_after: Option<u64>,
    /// Until more than `available` fits; 0 if nothing is spent.
    next: u64,
    /// Until everything fits.
    reset: u64,
}

impl Report {
    /// All waits of an algorithm that can tell them by cost.
    fn of(policy: &Policy, available: u32, refused: Option<u32>, wait: impl Fn(u32) -> u64) -> Self {
        let spent = available < policy.capacity();
        Self {
            available,
            retry_after: refused.map(&wait),
            next: if spent { wait(available + 1) } else { 0 },
            reset: if spent { wait(policy.capacity()) } else { 0 },
        }
    }
}

impl State {
    pub(crate) fn new(policy: &Policy) -> Self {
        match policy.algorithm() {
            Algorithm::FixedWindow => Self::Fixed(fixed::Fixed::default()),
            Algorithm::SlidingWindowCounter => Self::Counter(counter::Counter::default()),
            Algorithm::SlidingWindowLog => Self::Log(log::Log::default()),
            Algorithm::TokenBucket => Self::Bucket(bucket::Bucket::default()),
        }
    }

    /// Both steps, for a check that owes nothing else.
    pub(crate) fn judge(&mut self, policy: &Policy, now: u64, cost: u32) -> Outcome {
        each!(self, count => {
            let rolled = count.rolled(policy, now);
            let fits = cost == 0 || count.fits(&rolled, policy, now, cost);
            commit(count, rolled, policy, now, cost, fits, Pays::of(fits))
        })
    }

    /// Step one: whether `cost` fits. Nothing changes.
    pub(crate) fn evaluate(&self, policy: &Policy, now: u64, cost: u32) -> bool {
        cost == 0 || each!(self, count => count.fits(&count.rolled(policy, now), policy, now, cost))
    }

    /// Step two: charges, if the whole check was allowed or rejections count, and reports.
    pub(crate) fn commit(&mut self, policy: &Policy, now: u64, cost: u32, fits: bool, pays: Pays) -> Outcome {
        each!(self, count => commit(count, count.rolled(policy, now), policy, now, cost, fits, pays))
    }

    /// The largest cost that fits now.
    pub(crate) fn available(&self, policy: &Policy, now: u64) -> u32 {
        each!(self, count => count.report(&count.rolled(policy, now), policy, now, None).available)
    }

    pub(crate) fn idle_at(&self, policy: &Policy) -> u64 {
        each!(self, count => count.idle_at(policy))
    }
}

/// What a check has come to, for one of its charges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pays {
    /// All of it fits.
    Admitted,
    /// Nothing, whatever the policy says: a ban refuses it.
    Nothing,
    /// Only if rejections count.
    Rejected,
}

impl Pays {
    pub(crate) fn of(allowed: bool) -> Self {
        if allowed { Self::Admitted } else { Self::Rejected }
    }
}

fn commit<C: Count>(
    count: &mut C,
    mut rolled: C::Rolled,
    policy: &Policy,
    now: u64,
    cost: u32,
    mut fits: bool,
    pays: Pays,
) -> Outcome {
    let capacity = policy.capacity();
    let counts = match pays {
        Pays::Admitted => true,
        Pays::Rejected => policy.count_rejected(),
        Pays::Nothing => false,
    };
    if counts && cost > 0 && cost <= capacity {
        rolled = count.charge(rolled, policy, now, cost);
        // A rejection that is counted may itself be what stands in the way now.
        fits = fits && (pays == Pays::Admitted || count.fits(&rolled, policy, now, cost));
    }
    let refused = (!fits && cost <= capacity).then_some(cost);
    let Report { available, retry_after, next, reset } = count.report(&rolled, policy, now, refused);
    Outcome { fits, available, retry_after_us: retry_after, next_us: next, reset_us: reset, ban_us: 0 }
}

/// The quotient, saturating, and the remainder of `a * b / c`.
fn muldiv(a: u64, b: u64, c: u64) -> (u64, u64) {
    // Nearly always: wide division is several times as slow.
    if let Some(product) = a.checked_mul(b) {
        return (product / c, product % c);
    }
    let (product, c) = (u128::from(a) * u128::from(b), u128::from(c));
    let narrow = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    (narrow(product / c), narrow(product % c))
}
