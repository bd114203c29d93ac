//! Windows of a calendar: one ends while callers call.

use super::amounts;
use crate::plan::month::{NEXT_MONTH, OF_A_MONTH};
use crate::plan::{Plan, mode::Mode};
use crate::{history::Call, world::Report};

/// For how long after the end of a window an instance may remember a denial, in milliseconds: for as much longer as its
/// reply was on its way, at most a deadline.
const NEAR: u64 = 50 + 10;

/// How far drift moves the end of a window, in milliseconds: by 1 % of the time until then, and of rounded times.
fn moved(report: &Report) -> u64 {
    let drifts = report.faults.iter().any(|fault| fault.drift().is_some());
    if drifts { NEXT_MONTH / 100 + 2 } else { 2 }
}

fn steps(report: &Report) -> bool {
    report.faults.iter().any(|fault| fault.kind.clock_step().is_some())
}

/// No window admits more than its limit. Where clocks step, both together admit no more than both limits.
pub(super) fn never_over_in_a_window(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if mode != Mode::Calendar {
        return None;
    }
    let moved = moved(report);
    let most = amounts::limit_of_stores(report, mode, OF_A_MONTH);
    for key in amounts::keys(report, mode) {
        let charged = |is_meant: &dyn Fn(&&Call) -> bool| {
            amounts::of_key(report, mode, key).filter(is_meant).map(Call::charged).sum::<u64>()
        };
        let before = charged(&|call| call.answered + moved < NEXT_MONTH);
        let after = charged(&|call| call.asked > NEXT_MONTH + moved);
        let all = charged(&|_| true);
        let is_over = if steps(report) { all > 2 * most } else { before > most || after > most };
        if is_over {
            return Some(format!("key {key}: {before} units of {most}, {after} in the next window, {all} in both"));
        }
    }
    None
}

/// A denied cost did not fit in its window.
pub(super) fn each_window_is_whole(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if mode != Mode::Calendar || steps(report) {
        return None;
    }
    let moved = moved(report);
    // A reply that a process reads after a pause is as late as that.
    let paused = report.pauses.iter().map(|pause| pause.to - pause.from).max().unwrap_or(0);
    for key in amounts::keys(report, mode) {
        let calls: Vec<&Call> = amounts::of_key(report, mode, key).collect();
        for denied in calls.iter().filter(|call| call.is_denied()) {
            let is_before = denied.answered + moved < NEXT_MONTH;
            let is_after = denied.asked > NEXT_MONTH + moved + NEAR + paused;
            let may_count = |call: &&&Call| {
                let is_later = call.charged_by.max(call.answered) + moved >= NEXT_MONTH;
                call.asked <= denied.answered && (is_before || is_later)
            };
            let spent: u64 = calls.iter().filter(may_count).map(|call| call.in_the_way()).sum();
            if (is_before || is_after) && spent + denied.cost <= OF_A_MONTH {
                let (cost, asked) = (denied.cost, denied.asked);
                return Some(format!(
                    "key {key}: {cost} units were denied at {asked} ms, when {spent} of {OF_A_MONTH} were taken"
                ));
            }
        }
    }
    None
}
