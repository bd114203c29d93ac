//! The sliding window counter: two windows aligned to the epoch. The cost of the older window is assumed to be spread
//! evenly over it.

use crate::algorithm::{Counter, muldiv, outcome, take, with};
use crate::{policy::Policy, verdict::Outcome};

/// The units spent in the current window and in the previous one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlidingWindowCounter {
    /// The start of the current window in microseconds.
    start: u64,
    previous: u64,
    current: u64,
}

/// The two windows at the time of the check, and the estimate from them.
pub(crate) struct Advanced {
    count: SlidingWindowCounter,
    /// The time left in the current window, in microseconds.
    left: u64,
    estimate: u64,
}

impl SlidingWindowCounter {
    /// The wait of `cost` in microseconds if the estimate is `spent`.
    fn wait_of(&self, policy: &Policy, now: u64, spent: u64, cost: u64) -> u64 {
        if spent + cost <= policy.limit() {
            return 0;
        }
        let window = policy.window_us();
        let (end, room) = (self.start + window, policy.limit() - cost);
        // The cost fits within the current window, while the weight of the older window falls.
        if let Some(room) = room.checked_sub(self.current) {
            let left = left_for(self.previous, room, window);
            if left > 0 {
                return end - left - now;
            }
        }
        // The cost fits when the current window ends and the older window no longer counts.
        if self.current <= room {
            return end - now;
        }
        // The cost fits within the next window, in which the current window is the older one.
        end + window - left_for(self.current, room, window) - now
    }

    /// Adds the estimate: the units of the previous window fade as the time `left` in the current window passes.
    fn with_estimate(self, policy: &Policy, left: u64) -> Advanced {
        let faded = if self.previous == 0 { 0 } else { muldiv(self.previous, left, policy.window_us()).0 };
        Advanced { count: self, left, estimate: faded + self.current }
    }
}

#[cfg(feature = "redis")]
impl SlidingWindowCounter {
    /// The count whose current window ends at `end`.
    pub(super) fn ending(end: u64, policy: &Policy, previous: u64, current: u64) -> Self {
        Self { start: end - policy.window_us(), previous, current }
    }

    /// The state at `now`, within the current window or, by a clock that is behind, before it.
    pub(super) fn advanced_in_window(self, policy: &Policy, now: u64) -> Advanced {
        self.with_estimate(policy, self.start + policy.window_us() - now.max(self.start))
    }
}

/// The longest time left in a window at which `count` units of the previous window weigh at most `room` units.
fn left_for(count: u64, room: u64, window: u64) -> u64 {
    // floor(count * left / window) <= room  <=>  left < (room + 1) * window / count
    let (quotient, rest) = muldiv(room + 1, window, count);
    window.min(if rest > 0 { quotient } else { quotient - 1 })
}

impl Counter for SlidingWindowCounter {
    type Advanced = Advanced;

    #[inline(always)]
    fn advance_to(&self, policy: &Policy, now: u64) -> Advanced {
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

    #[inline(always)]
    fn fits(&self, advanced: &Advanced, policy: &Policy, _: u64, cost: u64) -> bool {
        advanced.estimate.saturating_add(cost) <= policy.limit()
    }

    #[inline(always)]
    fn charge(&mut self, advanced: Advanced, policy: &Policy, _: u64, cost: u64) -> Advanced {
        *self = advanced.count;
        self.current = with(self.current, cost);
        self.with_estimate(policy, advanced.left)
    }

    #[inline(always)]
    fn report(&self, advanced: &Advanced, policy: &Policy, now: u64, fits: bool, denied: Option<u64>) -> Outcome {
        let spent = advanced.estimate;
        let available = policy.limit().saturating_sub(spent);
        outcome(policy, fits, available, denied, |cost| self.wait(advanced, policy, now, cost))
    }

    #[inline(always)]
    fn wait(&self, advanced: &Advanced, policy: &Policy, now: u64, cost: u64) -> u64 {
        advanced.count.wait_of(policy, now, advanced.estimate, cost)
    }

    fn credit(&mut self, advanced: Advanced, policy: &Policy, _: u64, units: u64) -> u64 {
        // The buckets stay where they are, also in the window after theirs.
        match advanced.count.start - self.start {
            0 => {
                let taken = take(&mut self.current, units);
                taken + take(&mut self.previous, units - taken)
            }
            past if past == policy.window_us() => take(&mut self.current, units),
            _ => 0,
        }
    }

    fn span(policy: &Policy, _: u64) -> u64 {
        2 * policy.window_us()
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.start + 2 * policy.window_us()
    }
}
