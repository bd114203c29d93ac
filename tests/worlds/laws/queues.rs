//! Whether callers that wait for their units get them when there is room.

use std::ops::RangeInclusive;

use super::amounts::{keys, of_key};
use crate::{
    history::{Call, Outcome},
    place::Pause,
    plan::{
        Plan,
        fault::Fault,
        mode::{LIMIT, Mode, WINDOW},
    },
    world::Report,
};

/// How long before a call the world has to be calm, in milliseconds: a window, and the recovery from a fault.
const CALM: u64 = WINDOW + 1_500;
/// How long a process may wait for its first connections, in milliseconds.
const FIRST_DIAL: u64 = 400;
/// How often a wait is looked at, in milliseconds.
const STEP: usize = 4;
/// How long a caller may stand beside room, beside the way, in milliseconds.
const SLACK: u64 = 40;

/// A caller that waits is served soon after its units fit, together with those of all who came before it.
///
/// Judged where one process asks: another one may be faster.
pub(super) fn nobody_waits_beside_room(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if !mode.waits() || plan.processes > 1 || report.faults.iter().any(|fault| fault.drift().is_some()) {
        return None;
    }
    let most = SLACK + 4 * (plan.delay + plan.jitter);
    for key in keys(report, mode) {
        let calls: Vec<&Call> = of_key(report, mode, key).collect();
        let others: Vec<Other> =
            calls.iter().map(|call| Other { call, counts: counts_within(report, &calls, call) }).collect();
        let has_waited = |call: &&&Call| {
            let is_answered = matches!(call.outcome, Outcome::Admitted { .. } | Outcome::Denied { .. });
            is_answered && call.asked > FIRST_DIAL && call.answered > call.asked + most && is_calm(report, call)
        };
        for call in calls.iter().filter(has_waited) {
            let fits = |at: &u64| {
                let taken: u64 =
                    others.iter().filter(|other| other.is_in_the_way(call, *at)).map(|other| other.call.cost).sum();
                taken + call.cost <= LIMIT
            };
            let steps = (call.asked..=call.answered).rev().step_by(STEP).take_while(fits).count();
            let waited = (steps * STEP) as u64;
            if waited > most {
                return Some(format!(
                    "{} units of key {key}, asked at {}, had room for {waited} ms until {}: {:?}",
                    call.cost, call.asked, call.answered, call.outcome
                ));
            }
        }
    }
    None
}

/// A call, and when its units may be in the window. `None` if they never are.
struct Other<'a> {
    call: &'a Call,
    counts: Option<RangeInclusive<u64>>,
}

impl Other<'_> {
    /// Whether a call stands in the way of another one: its units are spent, or it waits ahead.
    fn is_in_the_way(&self, of: &Call, at: u64) -> bool {
        let call = self.call;
        let is_behind = call.asked > of.asked && call.answered >= of.answered;
        let is_ahead = call.asked <= of.asked && (call.asked..=call.answered).contains(&at);
        let counts = self.counts.as_ref().is_some_and(|counts| counts.contains(&at));
        !std::ptr::eq(call, of) && !is_behind && (counts || is_ahead)
    }
}

/// When the units of a call may be in the window. `None` if they never are.
fn counts_within(report: &Report, calls: &[&Call], call: &Call) -> Option<RangeInclusive<u64>> {
    let until = match call.outcome {
        Outcome::Admitted { .. } => call.answered,
        Outcome::Denied { .. } => return None,
        Outcome::Failed { may_have_charged: false, .. } => return None,
        Outcome::Gone if was_without_room(calls, call) => return None,
        // Its question may be on its way.
        Outcome::Gone if is_calm(report, call) => call.answered + SLACK,
        Outcome::Gone | Outcome::Failed { .. } => call.charged_by,
    };
    Some(call.asked..=until + WINDOW)
}

/// Whether there was certainly no room for a call while it waited, because of what others have got.
fn was_without_room(calls: &[&Call], call: &Call) -> bool {
    let until = call.answered + SLACK;
    let is_full = |at: u64| {
        let is_sure = |other: &&&Call| other.asked + WINDOW > at && other.answered <= at;
        let sum: u64 = calls.iter().filter(is_sure).map(|other| other.charged()).sum();
        sum + call.cost > LIMIT
    };
    (call.asked..=until).step_by(STEP).all(is_full) && is_full(until)
}

/// Whether all faults were over long before a call, and its process was not away.
fn is_calm(report: &Report, call: &Call) -> bool {
    let is_far = |fault: &Fault| fault.at > call.answered || fault.end() + CALM < call.asked;
    let is_away = |pause: &Pause| pause.from <= call.answered && call.asked <= pause.to + WINDOW;
    report.faults.iter().all(is_far) && !report.pauses.iter().any(is_away)
}
