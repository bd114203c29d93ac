//! The fixed window: one count per window, aligned to the epoch or bounded by a calendar.

use crate::algorithm::{Counter, outcome, take, with};
use crate::{policy::Policy, verdict::Outcome};

/// The units spent in one window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FixedWindow {
    /// The end of the window in microseconds.
    end: u64,
    count: u64,
}

#[cfg(feature = "redis")]
impl FixedWindow {
    /// The count of a window that ends at `end`.
    pub(super) fn ending(end: u64, count: u64) -> Self {
        Self { end, count }
    }
}

impl Counter for FixedWindow {
    type Advanced = Self;

    #[inline(always)]
    fn advance_to(&self, policy: &Policy, now: u64) -> Self {
        // Within the same window, the most frequent case, no division is needed. A clock that is behind does not bring
        // an earlier window back.
        if now < self.end { *self } else { Self { end: policy.window_end_us(now), count: 0 } }
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
        &Self { end, count }: &Self,
        policy: &Policy,
        now: u64,
        fits: bool,
        denied: Option<u64>,
    ) -> Outcome {
        let available = policy.limit().saturating_sub(count);
        outcome(policy, fits, available, denied, |cost| self.wait(&Self { end, count }, policy, now, cost))
    }

    #[inline(always)]
    fn wait(&self, &Self { end, count }: &Self, policy: &Policy, now: u64, cost: u64) -> u64 {
        // A cost that does not fit waits for the end of the window.
        if count + cost <= policy.limit() { 0 } else { end - now }
    }

    fn credit(&mut self, advanced: Self, _: &Policy, _: u64, units: u64) -> u64 {
        if advanced.end == self.end { take(&mut self.count, units) } else { 0 }
    }

    fn span(policy: &Policy, _: u64) -> u64 {
        policy.window_us()
    }

    fn idle_at(&self, _: &Policy) -> u64 {
        self.end
    }
}
