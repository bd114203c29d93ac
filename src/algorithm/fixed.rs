//! The fixed window: one count per window, aligned to the epoch.

use super::{Count, Report};
use crate::policy::Policy;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fixed {
    start: u64,
    count: u64,
}

impl Fixed {
    fn rolled(&self, policy: &Policy, now: u64) -> Self {
        let at = now.max(self.start);
        let start = at - at % policy.window_us();
        Self { start, count: if start == self.start { self.count } else { 0 } }
    }
}

impl Count for Fixed {
    fn fits(&self, policy: &Policy, now: u64, cost: u32) -> bool {
        self.rolled(policy, now).count + u64::from(cost) <= policy.limit().into()
    }

    fn charge(&mut self, policy: &Policy, now: u64, cost: u32) {
        *self = self.rolled(policy, now);
        self.count += u64::from(cost);
    }

    fn report(&self, policy: &Policy, now: u64, refused: Option<u32>) -> Report {
        let Self { start, count } = self.rolled(policy, now);
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
