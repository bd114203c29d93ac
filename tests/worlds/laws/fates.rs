//! Whether callers learn what was charged.

use crate::history::{Call, Outcome};
use crate::plan::{Plan, mode::Mode};
use crate::world::Report;

/// How long after the first answer of the store a process may not know the number of instances, in milliseconds.
const COUNTED_AFTER: u64 = 500;

/// A check that fails local has a verdict, whatever the store does. Where the store counts the instances, their number
/// has to be known.
pub(super) fn a_share_gives_a_verdict(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if !mode.is_local() || mode.is_web() {
        return None;
    }
    let starts = |call: &Call| {
        let starts = report.faults.iter().filter(|fault| fault.kind.starts_limiter());
        starts.filter(|start| start.process == call.place.process && start.at <= call.asked).map(|start| start.at).max()
    };
    let knows = |call: &&Call| {
        let since = starts(call).unwrap_or(0);
        let is_answer = |other: &Call| {
            let is_here = other.mode == mode && other.place.process == call.place.process && other.asked > since;
            is_here && other.charged() > 0 && !other.by_share && other.answered + COUNTED_AFTER < call.asked
        };
        mode != Mode::Discovered || report.calls.iter().any(is_answer)
    };
    let is_failed = |call: &&Call| call.mode == mode && matches!(call.outcome, Outcome::Failed { .. });
    let failed = report.calls.iter().filter(is_failed).find(knows)?;
    Some(format!("asked at {}, and at {}: {:?}", failed.asked, failed.answered, failed.outcome))
}

/// What a caller learns of a charge is what the servers have done: an admission is one charge, a call that was not
/// charged is none, and a call of unknown fate is one at most.
pub(super) fn errors_tell_the_fate(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let mut calls = report.calls.iter().filter(|call| call.mode == mode && mode == Mode::Told);
    let wrong = calls.find(|call| {
        let charges = report.done.charges(call.key);
        match call.outcome {
            Outcome::Admitted { .. } => charges != 1,
            Outcome::Denied { .. } | Outcome::Failed { may_have_charged: false, .. } => charges > 0,
            Outcome::Gone | Outcome::Failed { may_have_charged: true, .. } => charges > 1,
        }
    })?;
    let charges = report.done.charges(wrong.key);
    let (key, asked, answered, outcome) = (wrong.key, wrong.asked, wrong.answered, &wrong.outcome);
    Some(format!("key {key} was charged {charges} times, asked at {asked}, and at {answered}: {outcome:?}"))
}
