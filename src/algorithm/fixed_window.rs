//! The fixed window: one count per window, aligned to the epoch.

use crate::{
    algorithm::counter::{Counter, outcome, take, with},
    policy::Policy,
    verdict::Outcome,
};

/// The units spent in one window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FixedWindow {
    /// The start of the window in microseconds.
    start: u64,
    count: u64,
}

#[cfg(feature = "redis")]
impl FixedWindow {
    /// The count of a window that ends at `end`.
    pub(super) fn ending(end: u64, policy: &Policy, count: u64) -> Self {
        Self { start: end - policy.window_us(), count }
    }
}

impl Counter for FixedWindow {
    type Advanced = Self;

    #[inline(always)]
    fn advance_to(&self, policy: &Policy, now: u64) -> Self {
        let at = now.max(self.start);
        // Within the same window, the most frequent case, no division is needed.
        if at - self.start < policy.window_us() && self.count > 0 {
            return *self;
        }
        let start = at - at % policy.window_us();
        Self { start, count: if start == self.start { self.count } else { 0 } }
    }

    #[inline(always)]
    fn fits(&self, advanced: &Self, policy: &Policy, _: u64, cost: u64) -> bool {
        advanced.count.saturating_add(cost) <= policy.limit()
    }

    #[inline(always)]
    fn charge(&mut self, advanced: Self, _: &Policy, _: u64, cost: u64) -> Self {
        *self = Self { count: with(advanced.count, cost), ..advanced };
        *self
    }

    #[inline(always)]
    fn report(
        &self,
        &Self { start, count }: &Self,
        policy: &Policy,
        now: u64,
        fits: bool,
        denied: Option<u64>,
    ) -> Outcome {
        let available = policy.limit().saturating_sub(count);
        outcome(policy, fits, available, denied, |cost| self.wait(&Self { start, count }, policy, now, cost))
    }

    #[inline(always)]
    fn wait(&self, &Self { start, count }: &Self, policy: &Policy, now: u64, cost: u64) -> u64 {
        // A cost that does not fit waits for the end of the window.
        if count + cost <= policy.limit() { 0 } else { start + policy.window_us() - now }
    }

    fn credit(&mut self, advanced: Self, _: &Policy, _: u64, units: u64) -> u64 {
        if advanced.start == self.start { take(&mut self.count, units) } else { 0 }
    }

    fn span(policy: &Policy, _: u64) -> u64 {
        policy.window_us()
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.start + policy.window_us()
    }
}
