//! The sliding window counter: two buckets aligned to the epoch, and an even spread assumed in the older one.

use super::{Count, Report, muldiv};
use crate::policy::Policy;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    start: u64,
    previous: u64,
    current: u64,
}

/// The two buckets as they are now, and what is made of them.
pub(crate) struct Rolled {
    count: Counter,
    /// The time left in the current bucket.
    left: u64,
    estimate: u64,
}

impl Counter {
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

    fn with_estimate(self, policy: &Policy, left: u64) -> Rolled {
        let faded = if self.previous == 0 { 0 } else { muldiv(self.previous, left, policy.window_us()).0 };
        Rolled { count: self, left, estimate: faded + self.current }
    }
}

/// The most time that may be left in a window for `count` units of the one before to weigh at most `room`.
fn left_for(count: u64, room: u64, window: u64) -> u64 {
    // floor(count * left / window) <= room  <=>  left < (room + 1) * window / count
    let (quotient, rest) = muldiv(room + 1, window, count);
    window.min(if rest > 0 { quotient } else { quotient - 1 })
}

impl Count for Counter {
    type Rolled = Rolled;

    fn rolled(&self, policy: &Policy, now: u64) -> Rolled {
        let window = policy.window_us();
        let at = now.max(self.start);
        let start = at - at % window;
        let (previous, current) = match start - self.start {
            0 => (self.previous, self.current),
            past if past == window => (self.current, 0),
            _ => (0, 0),
        };
        Self { start, previous, current }.with_estimate(policy, start + window - at)
    }

    fn fits(&self, rolled: &Rolled, policy: &Policy, _: u64, cost: u32) -> bool {
        rolled.estimate + u64::from(cost) <= policy.limit().into()
    }

    fn charge(&mut self, rolled: Rolled, policy: &Policy, _: u64, cost: u32) -> Rolled {
        *self = rolled.count;
        self.current += u64::from(cost);
        self.with_estimate(policy, rolled.left)
    }

    fn report(&self, rolled: &Rolled, policy: &Policy, now: u64, refused: Option<u32>) -> Report {
        let spent = rolled.estimate;
        let available = policy.limit().saturating_sub(u32::try_from(spent).unwrap_or(u32::MAX));
        Report::of(policy, available, refused, |cost| rolled.count.wait(policy, now, spent, cost))
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.start + 2 * policy.window_us()
    }
}
