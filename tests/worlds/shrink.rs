//! Shrinks a failing plan: fewer faults, processes, callers and modes, for as long as the same law breaks.

use crate::laws::{Breach, judge};
use crate::{plan::Plan, world};

/// The most worlds that a search tries.
const MOST: usize = 200;

/// A smaller plan that breaks the same law under the same mode.
pub(crate) fn shrink(plan: &Plan, breach: &Breach) -> Plan {
    let (mut best, mut left) = (plan.clone(), MOST);
    loop {
        let Some(smaller) = smaller_plans(&best, breach).into_iter().find(|smaller| {
            left = left.saturating_sub(1);
            left > 0 && breaks(smaller, breach)
        }) else {
            return best;
        };
        best = smaller;
    }
}

pub(crate) fn breaks(plan: &Plan, breach: &Breach) -> bool {
    let report = world::run(plan);
    judge(plan, &report).iter().any(|found| found.law == breach.law && found.mode == breach.mode)
}

/// Plans that are a step smaller, the largest steps first.
fn smaller_plans(plan: &Plan, breach: &Breach) -> Vec<Plan> {
    let mut smaller = vec![];
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        let faults = std::mem::take(&mut changed.faults);
        changed.faults = faults.into_iter().filter(|fault| changed.has_place_for(fault)).collect();
        if changed != *plan {
            smaller.push(changed);
        }
    };
    add(&|plan| plan.modes = vec![breach.mode]);
    for index in 0..plan.faults.len() {
        add(&|plan| {
            plan.faults.remove(index);
        });
    }
    add(&|plan| plan.processes = 1);
    add(&|plan| plan.processes = plan.processes.saturating_sub(1).max(1));
    if breach.mode.second_policy().is_none() {
        add(&|plan| plan.servers = 1);
        add(&|plan| plan.sentinels = 0);
    }
    add(&|plan| plan.runtimes = 1);
    add(&|plan| plan.runtimes = plan.runtimes.saturating_sub(1).max(1));
    add(&|plan| plan.callers = plan.callers.div_ceil(2));
    add(&|plan| plan.callers = plan.callers.saturating_sub(1).max(1));
    add(&|plan| (plan.delay, plan.jitter) = (0, 0));
    add(&|plan| plan.jitter = 0);
    add(&|plan| plan.load = (plan.load / 2).max(500));
    for index in 0..plan.faults.len() {
        add(&|plan| plan.faults[index].lasts = (plan.faults[index].lasts / 2).max(20));
    }
    smaller
}
