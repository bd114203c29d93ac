//! Counts in Redis: the script charges them and reports their state, and the outcome is computed here.

use crate::algorithm::{
    Counter, fixed_window::FixedWindow, held::Held, sliding_window_counter::SlidingWindowCounter,
    token_bucket::TokenBucket,
};
use crate::{policy::Policy, verdict::Outcome};

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
    pub(crate) fn outcome(self, policy: &Policy, cost: u64, fits: bool) -> Outcome {
        let denied = (!fits && cost <= policy.capacity()).then_some(cost);
        match self {
            Self::FixedWindow { count, left } => {
                let count = FixedWindow::ending(NOW + left, count);
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

    /// The outcome of a charge beside open holds, the last of which ends `last_end` microseconds after it.
    pub(crate) fn outcome_beside(self, policy: &Policy, cost: u64, fits: bool, held: Held) -> Outcome {
        let held = Held { last_end: NOW + held.last_end, ..held };
        match self {
            Self::FixedWindow { count, left } => {
                let count = FixedWindow::ending(NOW + left, count);
                beside(&count, &count, policy, cost, fits, held)
            }
            Self::SlidingWindowCounter { previous, current, left } => {
                let count = SlidingWindowCounter::ending(NOW + left, policy, previous, current);
                beside(&count, &count.advanced_in_window(policy, NOW), policy, cost, fits, held)
            }
            Self::TokenBucket { ahead, fraction } => {
                let count = TokenBucket::full_at(NOW + ahead, policy, fraction);
                beside(&count, &count.full(), policy, cost, fits, held)
            }
        }
    }
}

/// The outcome of a charge beside open holds.
fn beside<C: Counter>(
    count: &C,
    advanced: &C::Advanced,
    policy: &Policy,
    cost: u64,
    fits: bool,
    held: Held,
) -> Outcome {
    let denied = (!fits && cost <= policy.capacity()).then_some(cost);
    let plain = count.report(advanced, policy, NOW, fits, None);
    held.outcome(policy, NOW, plain, denied, |cost| count.wait(advanced, policy, NOW, cost))
}
