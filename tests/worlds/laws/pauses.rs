//! Whether a service is left alone when it asks for it.

use super::amounts;
use crate::changes::{Change, What};
use crate::plan::mode::{MAX_WAIT, Mode};
use crate::plan::{Plan, fault::Fault};
use crate::{history::Call, world::Report};

/// What rounded times may add, in milliseconds.
const SLACK: u64 = 2;
/// After how long other processes know of a pause, beside the way, in milliseconds.
const KNOWN_AFTER: u64 = 30;
/// How long a process may wait for its first connections, in milliseconds.
const FIRST_DIAL: u64 = 400;

/// A process that was asked for a pause does not call within it. Others that ask the store do not, either.
pub(super) fn a_pause_is_kept(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    for pause in report.changes.iter().filter(|change| change.mode == mode && change.what == What::Pause) {
        let until = pause.asked + pause.units;
        let is_within = |call: &&Call| {
            let is_reached = call.charged() > 0 && call.answered > pause.asked && call.answered + SLACK < until;
            is_reached && knows(plan, report, pause, call)
        };
        if let Some(call) = amounts::of_key(report, mode, pause.key).find(is_within) {
            return Some(format!(
                "key {}: process {} was asked at {} not to call until {until}, and process {} called at {}",
                pause.key, pause.place.process, pause.asked, call.place.process, call.answered
            ));
        }
    }
    None
}

/// Whether the process of a call has to know of a pause.
fn knows(plan: &Plan, report: &Report, pause: &Change, call: &Call) -> bool {
    if call.place.process == pause.place.process {
        // Another limiter knows of none. Calls that wait stay with theirs.
        let is_near = |fault: &Fault| fault.at <= call.answered && pause.asked <= fault.at + 2 * MAX_WAIT;
        let starts = |fault: &Fault| fault.kind.starts_limiter() && fault.process == call.place.process;
        return !report.faults.iter().any(|fault| starts(fault) && is_near(fault));
    }
    let way = 4 * (plan.delay + plan.jitter);
    report.faults.is_empty() && pause.asked > FIRST_DIAL && call.asked > pause.asked + way + KNOWN_AFTER
}
