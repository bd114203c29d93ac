//! How callers fare while two servers behind sentinels are masters.

use crate::{
    history::{Call, Outcome},
    plan::{
        Plan,
        fault::{Fault, Kind},
        mode::Mode,
    },
    world::Report,
};

/// How long a store may follow a former master after its sentinels name another one, in milliseconds: the time between
/// two questions, and the way of a question and of a dial.
const FOLLOWS: u64 = 1_000;
const ROUND_TRIPS: u64 = 8;
const SLACK: u64 = 20;
/// How long a process may wait for its first connections, in milliseconds.
const FIRST_DIAL: u64 = 400;
/// The longest way over which a check that finds its connections left gets another one within its deadline, in
/// milliseconds.
const SHORT_WAY: u64 = 1;

/// When all processes have left the former master, if nothing else went wrong.
fn left_by(plan: &Plan, report: &Report) -> Option<(Fault, u64)> {
    let [fault] = report.faults[..] else { return None };
    let by = fault.at + FOLLOWS + ROUND_TRIPS * 2 * (plan.delay + plan.jitter + 1) + SLACK;
    (fault.kind == Kind::TwoMasters && report.pauses.iter().all(|pause| pause.to < fault.at)).then_some((fault, by))
}

/// No process asks a former master when its sentinels have named another one for about a second.
pub(super) fn a_former_master_is_left(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    // Once for the world.
    let (_, by) = left_by(plan, report).filter(|_| plan.modes.first() == Some(&mode))?;
    let (process, at) = report.served_by_former.iter().find(|(_, at)| **at > by)?;
    Some(format!("process {process} asked a former master at {at}, and not until {by} ms"))
}

/// Where sentinels switch masters and both are well, checks have verdicts all the time. A store that has left the
/// former master does not notice its end.
pub(super) fn a_requested_failover_is_no_outage(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let (fault, by) = left_by(plan, report)?;
    if fault.end() <= by || plan.delay + plan.jitter > SHORT_WAY {
        return None;
    }
    let is_failed = |call: &&Call| matches!(call.outcome, Outcome::Failed { .. }) && call.asked > FIRST_DIAL;
    let failed: Vec<&Call> = report.calls.iter().filter(|call| call.mode == mode).filter(is_failed).collect();
    let first = failed.first()?;
    Some(format!("{} calls without a verdict; the first at {}: {:?}", failed.len(), first.asked, first.outcome))
}
