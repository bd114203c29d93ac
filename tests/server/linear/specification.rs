//! What calls do, one after the other: two budgets with holds. The window of the policies is longer than a history, so
//! no unit leaves it, and time has no part in this.

use std::collections::BTreeMap;

use todc_utils::Specification;

/// The limits of the two budgets.
pub(super) const LIMITS: [u64; 2] = [30, 20];

/// A call, and what its caller has learned. With `None`, the caller has no answer.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// A budget without a cost is not part of the check. The units of one budget may be held instead of charged.
    Check {
        costs: [u64; 2],
        hold: Option<Hold>,
        answer: Option<Answer>,
    },
    /// A settlement, or a release with 0 units. Whether the hold was open.
    End {
        hold: u64,
        actual: u64,
        was_open: Option<bool>,
    },
    /// Whether there was something to forget.
    Reset {
        budget: usize,
        found: Option<bool>,
    },
    Peek(Answer),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) number: u64,
    pub(super) budget: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) is_allowed: bool,
    /// What is available afterwards, where the answer tells it.
    pub(super) available: [Option<u64>; 2],
    /// The time of the server, in microseconds.
    pub(super) time_us: u64,
    /// The Retry-After of a denial, in microseconds.
    pub(super) wait_us: Option<u64>,
}

impl Answer {
    /// Whether the answer tells what is available, where it tells it at all.
    pub(super) fn tells(&self, available: impl Fn(usize) -> u64) -> bool {
        (0..2).all(|budget| self.available[budget].is_none_or(|told| told == available(budget)))
    }
}

#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Budgets {
    charged: [u64; 2],
    /// By the number of the hold: its budget and units.
    holds: BTreeMap<u64, (usize, u64)>,
    /// Whether a count was begun since the last reset.
    is_counted: [bool; 2],
}

impl Budgets {
    fn spent(&self, budget: usize) -> u64 {
        self.charged[budget] + self.holds.values().filter(|hold| hold.0 == budget).map(|hold| hold.1).sum::<u64>()
    }

    fn available(&self, budget: usize) -> u64 {
        LIMITS[budget].saturating_sub(self.spent(budget))
    }

    /// Charges or holds all costs if all fit. Returns whether they do.
    fn check(&mut self, costs: [u64; 2], hold: Option<Hold>) -> bool {
        let fit = (0..2).all(|budget| costs[budget] <= self.available(budget) || costs[budget] == 0);
        for budget in (0..2).filter(|&budget| fit && costs[budget] > 0) {
            self.is_counted[budget] = true;
            match hold.filter(|hold| hold.budget == budget) {
                Some(hold) => drop(self.holds.insert(hold.number, (budget, costs[budget]))),
                None => self.charged[budget] += costs[budget],
            }
        }
        fit
    }

    /// Replaces a hold by what it has cost. Returns whether it was open.
    fn end(&mut self, hold: u64, actual: u64) -> bool {
        let Some((budget, _)) = self.holds.remove(&hold) else { return false };
        self.charged[budget] += actual;
        true
    }

    fn reset(&mut self, budget: usize) {
        self.charged[budget] = 0;
        self.is_counted[budget] = false;
        self.holds.retain(|_, hold| hold.0 != budget);
    }
}

impl Specification for Budgets {
    type State = Self;
    type Operation = Operation;

    fn init() -> Self {
        Self::default()
    }

    fn apply(operation: &Operation, before: &Self) -> (bool, Self) {
        let mut after = before.clone();
        let is_valid = match *operation {
            Operation::Check { costs, hold, answer } => {
                let is_allowed = after.check(costs, hold);
                answer.is_none_or(|answer| {
                    answer.is_allowed == is_allowed && answer.tells(|budget| after.available(budget))
                })
            }
            Operation::End { hold, actual, was_open } => {
                let is_open = after.end(hold, actual);
                was_open.is_none_or(|was_open| was_open == is_open)
            }
            Operation::Reset { budget, found } => {
                after.reset(budget);
                // A count of zero may be found or not.
                found.is_none_or(|found| if found { before.is_counted[budget] } else { before.spent(budget) == 0 })
            }
            Operation::Peek(answer) => answer.tells(|budget| before.available(budget)),
        };
        (is_valid, after)
    }
}
