//! The fixed window: one count per window, aligned to the epoch.

use super::{Count, Report};
use crate::policy::Policy;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fixed {
    start: u64,
    count: u64,
}

impl Count for Fixed {
    type Rolled = Self;

    fn rolled(&self, policy: &Policy, now: u64) -> Self {
        let at = now.max(self.start);
        // Most often the window is still the same, which can be told without a division.
        if at - self.start < policy.window_us() && self.count > 0 {
            return *self;
        }
        let start = at - at % policy.window_us();
        Self { start, count: if start == self.start { self.count } else { 0 } }
    }

    fn fits(&self, rolled: &Self, policy: &Policy, _: u64, cost: u32) -> bool {
        rolled.count + u64::from(cost) <= policy.limit().into()
    }

    fn charge(&mut self, rolled: Self, _: &Policy, _: u64, cost: u32) -> Self {
        *self = Self { count: rolled.count + u64::from(cost), ..rolled };
        *self
    }

    fn report(&self, &Self { start, count }: &Self, policy: &Policy, now: u64, refused: Option<u32>) -> Report {
        let available = policy.limit().saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        // Whatever does not fit waits for the window's end.
        let wait =
            |cost| if count + u64::from(cost) <= policy.limit().into() { 0 } else { start + policy.window_us() - now };
        Report::of(policy, available, refused, wait)
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.start + policy.window_us()
    }
}
