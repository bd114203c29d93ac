//! How callers fare while two servers behind sentinels are masters.

use crate::history::{Call, Outcome};
use crate::plan::fault::{Fault, Kind};
use crate::plan::{Plan, mode::Mode};
use crate::world::Report;

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

/// A failover on request beside which nothing goes wrong, and when a process has left the former master: later by what
/// the process was away.
fn left_by(plan: &Plan, report: &Report, process: usize) -> Option<(Fault, u64)> {
    let [fault] = report.faults[..] else { return None };
    let pauses = report.pauses.iter().filter(|pause| pause.process == process && pause.to > fault.at);
    let away: u64 = pauses.map(|pause| pause.to - pause.from).sum();
    let by = fault.at + FOLLOWS + ROUND_TRIPS * 2 * (plan.delay + plan.jitter + 1) + SLACK + away;
    (fault.kind == Kind::TwoMasters).then_some((fault, by))
}

/// No process asks a former master when its sentinels have named another one for about a second.
pub(super) fn a_former_master_is_left(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    // Once for the world.
    if plan.modes.first() != Some(&mode) {
        return None;
    }
    report.served_by_former.iter().find_map(|(process, at)| {
        let (_, by) = left_by(plan, report, *process)?;
        (*at > by).then(|| format!("process {process} asked a former master at {at}, and not until {by} ms"))
    })
}

/// Where sentinels switch masters and both are well, checks have verdicts all the time. A store that has left the
/// former master does not notice its end.
pub(super) fn a_requested_failover_is_no_outage(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if plan.delay + plan.jitter > SHORT_WAY {
        return None;
    }
    let is_failed = |call: &&Call| {
        let is_judged = || left_by(plan, report, call.place.process).is_some_and(|(fault, by)| by < fault.end());
        matches!(call.outcome, Outcome::Failed { .. }) && call.asked > FIRST_DIAL && is_judged()
    };
    let failed: Vec<&Call> = report.calls.iter().filter(|call| call.mode == mode).filter(is_failed).collect();
    let first = failed.first()?;
    Some(format!("{} calls without a verdict; the first at {}: {:?}", failed.len(), first.asked, first.outcome))
}
