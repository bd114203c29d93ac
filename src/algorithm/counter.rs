//! The sliding window counter: two buckets aligned to the epoch, and an even spread assumed in the older one.

use super::{Count, Report, muldiv};
use crate::policy::Policy;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    start: u64,
    previous: u64,
    current: u64,
}

impl Counter {
    /// The two buckets as they are at `now`, and the time left in the current one.
    fn rolled(&self, policy: &Policy, now: u64) -> (Self, u64) {
        let window = policy.window_us();
        let at = now.max(self.start);
        let start = at - at % window;
        let (previous, current) = match start - self.start {
            0 => (self.previous, self.current),
            past if past == window => (self.current, 0),
            _ => (0, 0),
        };
        (Self { start, previous, current }, start + window - at)
    }

    /// How long `cost` has to wait when the estimate is `spent`.
    fn wait(&self, policy: &Policy, now: u64, spent: u64, cost: u32) -> u64 {
        if spent + u64::from(cost) <= policy.limit().into() {
            return 0;
        }
        let window = policy.window_us();
        let (end, room) = (self.start + window, u64::from(policy.limit() - cost));
        // In this window, while the older bucket fades.
        if let Some(room) = room.checked_sub(self.current) {
            let left = left_for(self.previous, room, window);
            if left > 0 {
                return end - left - now;
            }
        }
        // In the next one, where the current bucket is the older one.
        if self.current <= room {
            return end - now;
        }
        end + window - left_for(self.current, room, window) - now
    }

    fn estimate(&self, policy: &Policy, left: u64) -> u64 {
        muldiv(self.previous, left, policy.window_us()).0 + self.current
    }
}

/// The most time that may be left in a window for `count` units of the one before to weigh at most `room`.
fn left_for(count: u64, room: u64, window: u64) -> u64 {
    // floor(count * left / window) <= room  <=>  left < (room + 1) * window / count
    let (quotient, rest) = muldiv(room + 1, window, count);
    window.min(if rest > 0 { quotient } else { quotient - 1 })
}

impl Count for Counter {
    fn fits(&self, policy: &Policy, now: u64, cost: u32) -> bool {
        let (rolled, left) = self.rolled(policy, now);
        rolled.estimate(policy, left) + u64::from(cost) <= policy.limit().into()
    }

    fn charge(&mut self, policy: &Policy, now: u64, cost: u32) {
        *self = self.rolled(policy, now).0;
        self.current += u64::from(cost);
    }

    fn report(&self, policy: &Policy, now: u64, refused: Option<u32>) -> Report {
        let (rolled, left) = self.rolled(policy, now);
        let spent = rolled.estimate(policy, left);
        let available = policy.limit().saturating_sub(u32::try_from(spent).unwrap_or(u32::MAX));
        Report::of(policy, available, refused, |cost| rolled.wait(policy, now, spent, cost))
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.start + 2 * policy.window_us()
    }
}
