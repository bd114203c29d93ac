//! The algorithms as pure arithmetic: no I/O, no clock.
//!
//! Times are microseconds since the epoch. The same steps, with the same results, are in `lua/`; these are the oracle.

mod bucket;
mod counter;
mod fixed;
mod log;

use crate::{
    policy::{Algorithm, Policy},
    store::Outcome,
};

/// What one key has spent under one policy.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Bucket(bucket::Bucket),
    Counter(counter::Counter),
    Fixed(fixed::Fixed),
    Log(log::Log),
}

/// The questions that every algorithm answers. `cost` is at most the policy's capacity, except in `fits`.
trait Count {
    /// Whether `cost` may pass now.
    fn fits(&self, policy: &Policy, now: u64, cost: u32) -> bool;
    /// Spends `cost`.
    fn charge(&mut self, policy: &Policy, now: u64, cost: u32);
    /// The largest cost that fits now.
    fn available(&self, policy: &Policy, now: u64) -> u32;
    /// Microseconds until `cost` fits if nobody else spends.
    fn wait(&self, policy: &Policy, now: u64, cost: u32) -> u64;
    /// The instant from which this state is the same as a fresh one.
    fn idle_at(&self, policy: &Policy) -> u64;
}

impl State {
    pub(crate) fn new(policy: &Policy) -> Self {
        match policy.kind() {
            Algorithm::FixedWindow => Self::Fixed(fixed::Fixed::default()),
            Algorithm::SlidingWindowCounter => Self::Counter(counter::Counter::default()),
            Algorithm::SlidingWindowLog => Self::Log(log::Log::default()),
            Algorithm::TokenBucket => Self::Bucket(bucket::Bucket::default()),
        }
    }

    /// Step one: whether `cost` fits. Nothing changes.
    pub(crate) fn evaluate(&self, policy: &Policy, now: u64, cost: u32) -> bool {
        cost == 0 || self.count().fits(policy, now, cost)
    }

    /// Step two: charges, if the whole check was allowed or rejections count, and reports.
    pub(crate) fn commit(&mut self, policy: &Policy, now: u64, cost: u32, fits: bool, allowed: bool) -> Outcome {
        let capacity = policy.capacity();
        if cost > 0 && cost <= capacity && (allowed || policy.counts_rejected()) {
            self.count_mut().charge(policy, now, cost);
        }
        let count = self.count();
        let available = count.available(policy, now);
        Outcome {
            fits,
            available,
            retry_after_us: (!fits && cost <= capacity).then(|| count.wait(policy, now, cost)),
            next_us: if available < capacity { count.wait(policy, now, available + 1) } else { 0 },
            reset_us: count.wait(policy, now, capacity),
        }
    }

    pub(crate) fn idle_at(&self, policy: &Policy) -> u64 {
        self.count().idle_at(policy)
    }

    fn count(&self) -> &dyn Count {
        match self {
            Self::Bucket(state) => state,
            Self::Counter(state) => state,
            Self::Fixed(state) => state,
            Self::Log(state) => state,
        }
    }

    fn count_mut(&mut self) -> &mut dyn Count {
        match self {
            Self::Bucket(state) => state,
            Self::Counter(state) => state,
            Self::Fixed(state) => state,
            Self::Log(state) => state,
        }
    }
}

/// The quotient, saturating, and the remainder of `a * b / c`.
fn muldiv(a: u64, b: u64, c: u64) -> (u64, u64) {
    let (product, c) = (u128::from(a) * u128::from(b), u128::from(c));
    let narrow = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    (narrow(product / c), narrow(product % c))
}
