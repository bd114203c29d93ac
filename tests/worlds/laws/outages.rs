//! Whether the outage of one master of a cluster leaves the keys of the others alone.

use super::times;
use crate::{
    history::{Call, Outcome},
    plan::{
        Plan,
        fault::{Fault, Kind},
        mode::Mode,
    },
    world::Report,
};

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
