//! Whether callers that wait for their units get them when there is room.

use std::ops::RangeInclusive;

use super::amounts::{keys, of_key};
use crate::history::{Call, Outcome};
use crate::plan::mode::{LIMIT, MAX_WAIT, Mode, SLOTS, WINDOW};
use crate::plan::{Plan, fault::Fault};
use crate::{place::Pause, world::Report};

/// How long before a call the world has to be calm, in milliseconds: a window, and the recovery from a fault.
const CALM: u64 = WINDOW + 1_500;
/// How long a process may wait for its first connections, in milliseconds.
const FIRST_DIAL: u64 = 400;
/// How often a wait is looked at, in milliseconds.
const STEP: usize = 4;
/// How long a caller may stand beside room, beside the way, in milliseconds.
const SLACK: u64 = 40;
/// How far apart callers may be that are served at once, in milliseconds.
const AT_ONCE: u64 = 2;
/// How long the end of a slot may be on its way, in milliseconds.
const END_OF_A_SLOT: u64 = 150;

/// What callers wait for, where one process asks: another one may be faster. Pauses are another reason to wait.
fn limit_of_one(plan: &Plan, report: &Report, mode: Mode) -> Option<u64> {
    if !mode.waits()
        || mode == Mode::Upstream
        || plan.processes > 1
        || report.faults.iter().any(|fault| fault.drift().is_some())
    {
        return None;
    }
    Some(if mode.is_slots() { SLOTS } else { LIMIT })
}

/// How long a caller may stand beside room, in milliseconds.
fn longest_beside_room(plan: &Plan) -> u64 {
    SLACK + 4 * (plan.delay + plan.jitter)
}

/// A caller that may wait is denied before its time only if its units would not have fitted by then, beside those who
/// waited when it came. When a slot is free is not known before.
pub(super) fn nobody_is_sent_away_before_room(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let limit = limit_of_one(plan, report, mode).filter(|_| !mode.is_slots())?;
    for key in keys(report, mode) {
        let calls: Vec<&Call> = of_key(report, mode, key).collect();
        let others: Vec<Other> = Other::of(report, &calls);
        let is_sent_away = |call: &&&Call| {
            let is_early = call.answered + longest_beside_room(plan) < call.asked + MAX_WAIT;
            call.is_denied() && is_early && call.asked > FIRST_DIAL && is_calm(report, call)
        };
        for call in calls.iter().filter(is_sent_away) {
            let at = call.asked + MAX_WAIT - longest_beside_room(plan);
            let is_in_the_way = |other: &&Other| {
                let waits = other.call.asked <= call.asked && other.call.answered >= call.asked;
                other.is_in_the_way(call, at) || waits && !std::ptr::eq(other.call, *call)
            };
            let taken: u64 = others.iter().filter(is_in_the_way).map(|other| other.call.cost).sum();
            if taken + call.cost <= limit {
                return Some(format!(
                    "{} units of key {key}, asked at {}, were denied at {}, and had room at {at} beside {taken}: {:?}",
                    call.cost, call.asked, call.answered, call.outcome
                ));
            }
        }
    }
    None
}

/// Callers of one process are served as they come. Who has come when another one waits already does not overtake it.
pub(super) fn nobody_is_overtaken(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if !mode.waits() || mode == Mode::Upstream {
        return None;
    }
    let waits_after = longest_beside_room(plan);
    for key in keys(report, mode) {
        let calls: Vec<&Call> = of_key(report, mode, key).collect();
        let has_waited = |call: &&&Call| served(call) > call.asked + waits_after && is_calm(report, call);
        for first in calls.iter().filter(has_waited) {
            let overtakes = |later: &&&Call| {
                let is_admitted = matches!(later.outcome, Outcome::Admitted { .. }) && later.cost > 0;
                let is_later = later.asked > first.asked + waits_after && served(later) + AT_ONCE < served(first);
                later.place.process == first.place.process && is_admitted && is_later
            };
            if let Some(later) = calls.iter().find(overtakes) {
                return Some(format!(
                    "{} units of key {key}, asked at {} and served at {}, have overtaken {} units, asked at {}, \
                     answered at {}",
                    later.cost,
                    later.asked,
                    served(later),
                    first.cost,
                    first.asked,
                    served(first)
                ));
            }
        }
    }
    None
}

/// When a call has got its units, or has left without them.
fn served(call: &Call) -> u64 {
    call.web.as_ref().and_then(|web| web.reached).unwrap_or(call.answered)
}

/// A caller that waits is served soon after its units fit, together with those of all who came before it.
pub(super) fn nobody_waits_beside_room(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let limit = limit_of_one(plan, report, mode)?;
    let most = longest_beside_room(plan);
    for key in keys(report, mode) {
        let calls: Vec<&Call> = of_key(report, mode, key).collect();
        let others = Other::of(report, &calls);
        let has_waited = |call: &&&Call| {
            let is_answered = matches!(call.outcome, Outcome::Admitted { .. } | Outcome::Denied { .. });
            is_answered && call.asked > FIRST_DIAL && call.answered > call.asked + most && is_calm(report, call)
        };
        for call in calls.iter().filter(has_waited) {
            let fits = |at: &u64| {
                let taken: u64 =
                    others.iter().filter(|other| other.is_in_the_way(call, *at)).map(|other| other.call.cost).sum();
                taken + call.cost <= limit
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

impl<'a> Other<'a> {
    fn of(report: &Report, calls: &[&'a Call]) -> Vec<Self> {
        calls.iter().map(|call| Self { call, counts: counts_within(report, calls, call) }).collect()
    }

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
    if call.mode.is_slots() {
        return has_slot_within(report, call);
    }
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

/// When a call may have a slot. `None` if it never has one.
fn has_slot_within(report: &Report, call: &Call) -> Option<RangeInclusive<u64>> {
    let until = match call.outcome {
        Outcome::Denied { .. } | Outcome::Failed { may_have_charged: false, .. } => return None,
        Outcome::Admitted { .. } if is_calm(report, call) => call.worked.map_or(call.answered, |(_, ended)| ended),
        Outcome::Gone if is_calm(report, call) => call.answered + SLACK,
        _ => call.charged_by.max(call.answered),
    };
    Some(call.asked..=until + END_OF_A_SLOT)
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
