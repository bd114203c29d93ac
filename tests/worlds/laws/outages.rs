//! What an outage costs: the keys of other masters nothing, and all but a few callers no time.

use super::times;
use crate::history::{Call, Outcome};
use crate::plan::fault::{Fault, Kind};
use crate::plan::{Plan, mode::Mode};
use crate::world::Report;

/// How long processes may wait for their first connections, in milliseconds.
const FIRST_DIAL: u64 = 400;

/// How long a process needs after a fault of another kind, in milliseconds.
const RECOVERY: u64 = 2_500;

/// Whether a fault concerns one server, and the way to it.
fn is_of_one_server(fault: &Fault) -> bool {
    let by_server = matches!(fault.kind, Kind::Freeze | Kind::Crash | Kind::Wipe | Kind::Crowded | Kind::Loading);
    let by_answers = matches!(fault.kind, Kind::Busy | Kind::Full | Kind::Replica | Kind::TooFewReplicas);
    let by_login = matches!(fault.kind, Kind::NoLogin | Kind::NoPermission);
    let by_way = matches!(fault.kind, Kind::Cut | Kind::Deaf | Kind::Mute | Kind::Reset | Kind::HalfClosed);
    by_server || by_answers || by_login || by_way
}

/// While one master is away, a key of another one gets its verdicts as if nothing were wrong.
pub(super) fn other_masters_are_left_alone(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if !plan.is_cluster() || mode != Mode::Told {
        return None;
    }
    let is_of_another = |call: &&Call| {
        let Some(server) = report.done.only_server(call.key) else { return false };
        // Other faults count as long as they last, and for a while after.
        let is_far = |fault: &Fault| {
            let is_over = fault.kind != Kind::HalfOpen && fault.end() + RECOVERY < call.asked;
            is_of_one_server(fault) && fault.server != server || call.answered < fault.at || is_over
        };
        call.mode == mode && call.asked > FIRST_DIAL && report.faults.iter().all(is_far)
    };
    let is_bad = |call: &&Call| match call.outcome {
        Outcome::Failed { .. } => true,
        Outcome::Gone => false,
        _ => times::is_late_without_a_reason(plan, report, call),
    };
    let bad: Vec<&Call> = report.calls.iter().filter(is_of_another).filter(is_bad).collect();
    let first = bad.first()?;
    Some(format!(
        "{} calls without a verdict, or with a late one; the first is of key {} at {} to {} ms: {:?}",
        bad.len(),
        first.key,
        first.asked,
        first.answered,
        first.outcome
    ))
}

/// The deadline of a check, in milliseconds.
const DEADLINE: u64 = 50;
/// The checks without an answer, one after the other, after which a process stops asking.
const UNANSWERED: usize = 3;
/// How long no check may come until all are sent again, in milliseconds: the longest time between two probes.
const QUIET: u64 = 500;

/// A process that has got no answer to some checks lets one at a time find out whether the server is back. The others
/// do not wait.
pub(super) fn one_at_a_time_waits(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let [fault] = report.faults[..] else { return None };
    // Once for the world.
    let is_judged = plan.servers == 1 && plan.sentinels == 0 && plan.modes.first() == Some(&mode);
    let is_of_server = fault.kind == Kind::Freeze;
    let is_of_way = matches!(fault.kind, Kind::Cut | Kind::Deaf | Kind::Mute);
    if !is_judged || !is_of_server && !is_of_way {
        return None;
    }
    let processes = (0..plan.processes).filter(|process| is_of_server || *process == fault.process);
    processes.into_iter().find_map(|process| {
        let is_in = |call: &&Call| {
            let asks = !call.mode.waits() && !call.mode.is_memory() && call.mode != Mode::WebPlans;
            asks && call.place.process == process && call.asked >= fault.at && call.asked + DEADLINE <= fault.end()
        };
        let mut calls: Vec<&Call> = report.calls.iter().filter(is_in).collect();
        calls.sort_by_key(|call| call.asked);
        let is_quiet = calls.windows(2).any(|pair| pair[0].asked + QUIET < pair[1].asked);
        calls.retain(|call| call.answered - call.asked >= DEADLINE && call.outcome != Outcome::Gone);
        // Those that wait at the same time say no more than one.
        let mut open_at = fault.at;
        for _ in 0..UNANSWERED {
            open_at = calls.iter().filter(|call| call.asked > open_at).map(|call| call.answered).min()?;
        }
        calls.retain(|call| call.asked > open_at);
        let [one, other] = calls.windows(2).find(|pair| pair[1].asked < pair[0].answered)? else { return None };
        (!is_quiet).then(|| {
            let [one, other] = [one, other].map(|call| (call.mode, call.asked, call.answered));
            format!(
                "process {process} had no answer to {UNANSWERED} checks by {open_at}; then {one:?} and {other:?} waited"
            )
        })
    })
}
