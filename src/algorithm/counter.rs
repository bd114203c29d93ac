//! The trait that every algorithm implements, and the arithmetic that algorithms share.

use crate::policy::Policy;

/// The count of one key under one policy.
pub(super) trait Counter {
    /// The state at the time of the check. Computed once for all steps of the check.
    type Advanced;

    /// Computes the state at `now`. Changes nothing.
    fn advance_to(&self, policy: &Policy, now: u64) -> Self::Advanced;
    /// Whether `cost` fits now.
    fn fits(&self, advanced: &Self::Advanced, policy: &Policy, now: u64, cost: u32) -> bool;
    /// Charges `cost`, which is at most the capacity.
    fn charge(&mut self, advanced: Self::Advanced, policy: &Policy, now: u64, cost: u32) -> Self::Advanced;
    /// Reports the available units and the waits. `denied` is a cost that does not fit.
    fn report(&self, advanced: &Self::Advanced, policy: &Policy, now: u64, denied: Option<u32>) -> CountReport;
    /// The time from which this state equals a fresh one.
    fn idle_at(&self, policy: &Policy) -> u64;
}

/// The available units and the waits of a count. Waits are in microseconds from the time of the check.
pub(super) struct CountReport {
    /// The largest cost that fits now.
    pub(super) available: u32,
    /// The wait until the denied cost fits, if nothing else is charged.
    pub(super) retry_after: Option<u64>,
    /// The wait until more than `available` fits; 0 if nothing is spent.
    pub(super) next: u64,
    /// The wait until the whole capacity fits.
    pub(super) reset: u64,
}

impl CountReport {
    /// The report of an algorithm that can compute the `wait` of any cost.
    pub(super) fn new(policy: &Policy, available: u32, denied: Option<u32>, wait: impl Fn(u32) -> u64) -> Self {
        let is_spent = available < policy.capacity();
        Self {
            available,
            retry_after: denied.map(&wait),
            next: if is_spent { wait(available + 1) } else { 0 },
            reset: if is_spent { wait(policy.capacity()) } else { 0 },
        }
    }
}

/// The quotient (saturating) and the remainder of `a * b / c`, without overflow.
pub(super) fn muldiv(a: u64, b: u64, c: u64) -> (u64, u64) {
    // 128-bit division is several times slower and rarely needed.
    if let Some(product) = a.checked_mul(b) {
        return (product / c, product % c);
    }
    let (product, c) = (u128::from(a) * u128::from(b), u128::from(c));
    let narrow = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    (narrow(product / c), narrow(product % c))
}
