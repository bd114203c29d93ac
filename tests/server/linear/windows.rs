//! What calls do, one after the other, while windows pass. A call happens at the time of the server that its answer
//! tells, and this time never goes back.

use std::time::Duration;

use todc_utils::Specification;
use tollgate::{Algorithm, Policy};

use super::specification::{LIMITS, Operation};

const WINDOWS_US: [u64; 2] = [10_000, 15_000];

/// The policies of the budgets: a log, and a fixed window.
pub(super) fn policies() -> [Policy; 2] {
    let policy = |name: &str, budget: usize| {
        Policy::new(name, LIMITS[budget], Duration::from_micros(WINDOWS_US[budget])).unwrap()
    };
    [policy("one", 0), policy("other", 1).with_algorithm(Algorithm::FixedWindow)]
}

#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Windows {
    /// The time of the last call.
    time_us: u64,
    /// What is spent of each budget: units, and when they are free again.
    spent: [Vec<(u64, u64)>; 2],
}

/// When units are free again that are charged at this time: after a window, or when the fixed window ends.
fn free_at(budget: usize, time_us: u64) -> u64 {
    let window = WINDOWS_US[budget];
    if budget == 0 { time_us + window } else { (time_us / window + 1) * window }
}

impl Windows {
    /// Lets time pass. Returns whether it is not an earlier time.
    fn pass(&mut self, time_us: u64) -> bool {
        let is_later = time_us >= self.time_us;
        self.time_us = time_us;
        self.spent.iter_mut().for_each(|spent| spent.retain(|&(_, free)| free > time_us));
        is_later
    }

    fn available_at(&self, budget: usize, time_us: u64) -> u64 {
        let spent = self.spent[budget].iter().filter(|&&(_, free)| free > time_us);
        LIMITS[budget] - spent.map(|&(units, _)| units).sum::<u64>()
    }

    fn available(&self, budget: usize) -> u64 {
        self.available_at(budget, self.time_us)
    }

    fn fit_at(&self, costs: [u64; 2], time_us: u64) -> bool {
        (0..2).all(|budget| costs[budget] <= self.available_at(budget, time_us))
    }

    /// Charges all costs if all fit. Returns how long they would have to wait otherwise.
    fn check(&mut self, costs: [u64; 2]) -> Option<u64> {
        if !self.fit_at(costs, self.time_us) {
            let freed = self.spent.iter().flatten().map(|&(_, free)| free);
            return freed.filter(|&free| self.fit_at(costs, free)).min().map(|free| free - self.time_us);
        }
        for budget in (0..2).filter(|&budget| costs[budget] > 0) {
            self.spent[budget].push((costs[budget], free_at(budget, self.time_us)));
        }
        None
    }
}

impl Specification for Windows {
    type State = Self;
    type Operation = Operation;

    fn init() -> Self {
        Self::default()
    }

    fn apply(operation: &Operation, before: &Self) -> (bool, Self) {
        let mut after = before.clone();
        let is_valid = match operation {
            Operation::Check { costs, hold: None, answer: Some(answer) } => {
                let (is_later, wait_us) = (after.pass(answer.time_us), after.check(*costs));
                let is_told = answer.is_allowed == wait_us.is_none() && answer.wait_us == wait_us;
                is_later && is_told && answer.tells(|budget| after.available(budget))
            }
            Operation::Peek(answer) => after.pass(answer.time_us) && answer.tells(|budget| after.available(budget)),
            Operation::Reset { budget, found: Some(_) } => {
                after.spent[*budget].clear();
                true
            }
            other => panic!("{other:?} has no time"),
        };
        (is_valid, after)
    }
}
