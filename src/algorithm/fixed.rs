//! The fixed window: one count per window, aligned to the epoch.

use super::Count;
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

    fn available(&self, policy: &Policy, now: u64) -> u32 {
        let count = self.rolled(policy, now).count;
        policy.limit().saturating_sub(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn wait(&self, policy: &Policy, now: u64, cost: u32) -> u64 {
        if self.fits(policy, now, cost) {
            return 0;
        }
        self.rolled(policy, now).start + policy.window_us() - now
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.start + policy.window_us()
    }
}
