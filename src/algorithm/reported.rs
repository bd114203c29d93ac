//! Counts in Redis: the script charges them and reports their state, and the outcome is computed here.

use crate::{
    algorithm::{
        counter::Counter, fixed_window::FixedWindow, sliding_window_counter::SlidingWindowCounter,
        token_bucket::TokenBucket,
    },
    policy::Policy,
    verdict::Outcome,
};

/// The state of a count after a charge. Times are microseconds from the time of the charge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reported {
    FixedWindow {
        count: u64,
        /// The time until the window ends.
        left: u64,
    },
    SlidingWindowCounter {
        previous: u64,
        current: u64,
        /// The time until the current window ends.
        left: u64,
    },
    TokenBucket {
        /// The time until the arrival time.
        ahead: u64,
        /// The fraction of the arrival time, in parts of the policy's own limit.
        fraction: u64,
    },
}

/// The time of the charge: only differences from it matter, and no time that is reported lies before 0.
const NOW: u64 = 1 << 60;

impl Reported {
    /// The outcome of the charge.
    pub(crate) fn outcome(self, policy: &Policy, cost: u32, fits: bool) -> Outcome {
        let denied = (!fits && cost <= policy.capacity()).then_some(cost);
        match self {
            Self::FixedWindow { count, left } => {
                let count = FixedWindow::ending(NOW + left, policy, count);
                count.report(&count, policy, NOW, fits, denied)
            }
            Self::SlidingWindowCounter { previous, current, left } => {
                let count = SlidingWindowCounter::ending(NOW + left, policy, previous, current);
                count.report(&count.advanced_in_window(policy, NOW), policy, NOW, fits, denied)
            }
            Self::TokenBucket { ahead, fraction } => {
                let count = TokenBucket::full_at(NOW + ahead, policy, fraction);
                count.report(&count.full(), policy, NOW, fits, denied)
            }
        }
    }
}
