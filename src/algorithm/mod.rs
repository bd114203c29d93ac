//! The algorithms as pure arithmetic: no I/O, no clock, no store.
//!
//! Times are microseconds since the Unix epoch. Each algorithm has a file here and one in `lua/` with the same name,
//! the same steps and the same results: **evaluate** reads, **commit** writes.

mod fixed_window;
mod held;
mod record_queue;
#[cfg(feature = "redis")]
mod reported;
mod sliding_window_counter;
mod sliding_window_log;
mod state;
mod token_bucket;

use crate::{policy::Policy, verdict::Outcome};

#[cfg(feature = "redis")]
pub(crate) use self::reported::Reported;
pub(crate) use self::{
    held::Held,
    state::{Admission, CountState},
};

/// The count of one key under one policy.
trait Counter {
    /// The state at the time of the check. Computed once for all steps of the check.
    type Advanced;

    /// Computes the state at `now`. Changes nothing.
    fn advance_to(&self, policy: &Policy, now: u64) -> Self::Advanced;
    /// Whether `cost`, which may be any number, fits now.
    fn fits(&self, advanced: &Self::Advanced, policy: &Policy, now: u64, cost: u64) -> bool;
    /// Charges `cost`, which is at most the capacity.
    fn charge(&mut self, advanced: Self::Advanced, policy: &Policy, now: u64, cost: u64) -> Self::Advanced;
    /// The outcome of a check: the available units and the waits from `now`. `denied` is a cost that does not fit.
    fn report(&self, advanced: &Self::Advanced, policy: &Policy, now: u64, fits: bool, denied: Option<u64>) -> Outcome;
    /// The time until `cost`, at most the capacity, fits; 0 if it fits now.
    fn wait(&self, advanced: &Self::Advanced, policy: &Policy, now: u64, cost: u64) -> u64;
    /// Charges up to [`Policy::MAX_LIMIT`] units, whether or not they fit.
    fn settle(&mut self, advanced: Self::Advanced, policy: &Policy, now: u64, units: u64) {
        self.charge(advanced, policy, now, units);
    }
    /// Takes up to `units` charged units off the count. Returns how many were taken off.
    fn credit(&mut self, advanced: Self::Advanced, policy: &Policy, now: u64, units: u64) -> u64;
    /// The time in which `units` leave the count, or longer.
    fn span(policy: &Policy, units: u64) -> u64;
    /// The time from which this state equals a fresh one.
    fn idle_at(&self, policy: &Policy) -> u64;

    /// The time from which the state is worth less than the memory that it takes, because its key is rarely charged.
    /// Not before it is idle.
    fn stale_at(&self, policy: &Policy) -> u64 {
        self.idle_at(policy)
    }
}

/// The outcome under an algorithm that can compute the `wait` of any cost, in microseconds.
fn outcome(policy: &Policy, fits: bool, available: u64, denied: Option<u64>, wait: impl Fn(u64) -> u64) -> Outcome {
    let is_spent = available < policy.capacity();
    Outcome {
        fits,
        available,
        retry_after_us: denied.map(&wait),
        next_us: if is_spent { wait(available + 1) } else { 0 },
        reset_us: if is_spent { wait(policy.capacity()) } else { 0 },
        ban_us: 0,
    }
}

/// The most that a count of one window keeps. Only counted denials and settlements go beyond the limit, and no limit is
/// near this number, so more would affect no decision. Four times as much is exact in Lua's doubles.
const MOST: u64 = (1 << 50) - 1;

/// A count of one window with `units` more, as far as it keeps them.
#[inline(always)]
fn with(count: u64, units: u64) -> u64 {
    count.saturating_add(units).min(MOST)
}

/// Takes up to `units` off `count`. Returns how many were taken off.
fn take(count: &mut u64, units: u64) -> u64 {
    let taken = units.min(*count);
    *count -= taken;
    taken
}

/// The quotient (saturating) and the remainder of `a * b / c`, without overflow.
fn muldiv(a: u64, b: u64, c: u64) -> (u64, u64) {
    // 128-bit division is several times slower and rarely needed.
    if let Some(product) = a.checked_mul(b) {
        return (product / c, product % c);
    }
    let (product, c) = (u128::from(a) * u128::from(b), u128::from(c));
    let narrow = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    (narrow(product / c), narrow(product % c))
}
