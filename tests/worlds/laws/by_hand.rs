//! What changes by hand do to a count: units that are charged although they do not fit, and units that are given back.

use super::{amounts, room::given_back};
use crate::changes::{Change, What};
use crate::plan::fault::{Fault, Kind};
use crate::plan::mode::{LIMIT, Mode, WINDOW};
use crate::{history::Call, place::Pause, plan::Plan, world::Report};

/// How long before and after a fault a store may be away for an instance, in milliseconds.
const NEAR_A_FAULT: u64 = 2_500;
/// What rounded times may add, in milliseconds.
const SLACK: u64 = 5;

/// The changes of a key.
fn of_key(report: &Report, mode: Mode, key: u64) -> impl Iterator<Item = &Change> {
    report.changes.iter().filter(move |change| (change.mode, change.key) == (mode, key))
}

/// Whether the store was certainly there: an instance that is cut off charges the store later.
fn is_calm(report: &Report, change: &Change) -> bool {
    let is_far = |fault: &Fault| {
        let is_before = fault.kind != Kind::HalfOpen && fault.end() + NEAR_A_FAULT < change.asked;
        fault.kind.spares_store() || change.answered < fault.at || is_before
    };
    report.faults.iter().all(is_far)
}

/// A check passes beside what was charged before, also by hand, and with what was given back. Units are certain that
/// were charged between the question and the answer; those that may have left the window count for nothing.
pub(super) fn what_is_recorded_counts(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let drifts = report.faults.iter().any(|fault| fault.drift().is_some());
    if !mode.is_credited() || drifts || amounts::times_more(report) > 0 {
        return None;
    }
    for key in amounts::keys(report, mode) {
        let calls: Vec<&Call> = amounts::of_key(report, mode, key).filter(|call| call.charged() > 0).collect();
        let recorded = of_key(report, mode, key).filter(|change| change.what == What::Record);
        let recorded = recorded.filter(|change| change.certain() > 0 && is_calm(report, change));
        // When they were asked and answered, and their units.
        let mut sure: Vec<(u64, u64, u64)> = recorded.map(|one| (one.asked, one.answered, one.certain())).collect();
        sure.extend(calls.iter().map(|call| (call.asked, call.answered, call.charged())));
        sure.sort_unstable();
        for call in &calls {
            let given = |from: u64| given_back(report, mode, key, from, call.answered);
            let sum = |from: u64| {
                let before = sure.iter().filter(|(asked, answered, _)| *asked >= from && *answered < call.asked);
                before.map(|(_, _, units)| units).sum::<u64>() + call.charged()
            };
            let begins = match mode {
                Mode::CreditBucket => {
                    sure.iter().map(|(asked, ..)| *asked).filter(|asked| *asked < call.asked).collect()
                }
                Mode::CreditLog => vec![(call.answered + 1).saturating_sub(WINDOW)],
                // In one window of the clock.
                _ if call.asked / WINDOW == call.answered / WINDOW => vec![call.asked - call.asked % WINDOW],
                _ => continue,
            };
            for from in begins {
                let comes_in = (call.answered - from + 1) * LIMIT / WINDOW;
                let most = LIMIT + given(from) + if mode.is_bucket() { comes_in } else { 0 };
                let sum = sum(from);
                if sum > most {
                    let (asked, cost) = (call.asked, call.charged());
                    return Some(format!("key {key}: {cost} units at {asked} ms beside {sum} of {most} since {from}"));
                }
            }
        }
    }
    None
}

/// A credit gives back at most what was asked for, and at most what may have been charged.
pub(super) fn no_more_is_given_back(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let steps = report.faults.iter().any(|fault| fault.kind.clock_step().is_some() || fault.drift().is_some());
    // What a bucket lacks beyond its burst takes longer to come back, and a counter has two windows.
    let reach = match mode {
        Mode::CreditLog | Mode::CreditWindow if !steps => WINDOW + SLACK,
        Mode::CreditCounter if !steps => 2 * WINDOW + SLACK,
        _ => u64::MAX,
    };
    for credit in report.changes.iter().filter(|change| change.mode == mode && change.what == What::Credit) {
        let is_near = |asked: u64, until: u64| asked <= credit.answered && credit.asked <= until.saturating_add(reach);
        let calls = amounts::of_key(report, mode, credit.key);
        let checked = calls.filter(|call| is_near(call.asked, call.charged_by.max(call.answered)));
        let recorded = of_key(report, mode, credit.key).filter(|change| change.what == What::Record);
        let recorded = recorded.filter(|change| is_near(change.asked, owed_until(report, change)));
        let spent = checked.map(Call::in_the_way).sum::<u64>() + recorded.map(Change::most).sum::<u64>();
        let given = credit.certain();
        if given > spent.min(credit.units) {
            let Change { key, units, asked, .. } = credit;
            return Some(format!(
                "key {key}: {given} of {units} units were given back at {asked} ms, {spent} were spent"
            ));
        }
    }
    None
}

/// Until when units that are charged by hand may reach the store. Those that an instance owes come when they fit.
fn owed_until(report: &Report, change: &Change) -> u64 {
    if is_calm(report, change) { change.made_by } else { u64::MAX }
}

/// The units that are charged to a key by hand: when that was asked, and until when it may be done.
pub(super) fn recorded(report: &Report, mode: Mode, key: u64) -> Vec<(u64, u64, u64)> {
    let recorded = of_key(report, mode, key).filter(|change| change.what == What::Record);
    recorded.map(|change| (change.asked, owed_until(report, change), change.most())).collect()
}

/// The units that were given back for certain before a denial, of those that stood in its way. `left` are the units
/// that have left the way since a time: what was given back may have been among them.
///
/// What a process has given back itself, it knows at once. Judged where no server forgets what was given back.
pub(super) fn given_back_before(report: &Report, denied: &Call, left: impl Fn(u64, u64) -> u64) -> u64 {
    if report.faults.iter().any(|fault| fault.kind.loses_charges()) {
        return 0;
    }
    let credits = of_key(report, denied.mode, denied.key).filter(|change| change.what == What::Credit);
    let is_known = |credit: &&Change| credit.place.process == denied.place.process && credit.answered < denied.asked;
    let credits: Vec<&Change> = credits.filter(is_known).collect();
    let since = |first: &Change| {
        let given: u64 = credits.iter().filter(|other| other.asked >= first.asked).map(|other| other.certain()).sum();
        given.saturating_sub(left(first.asked, denied.asked))
    };
    credits.iter().map(|first| since(first)).max().unwrap_or(0)
}

/// The deadline, what the timers of both sides add, and the time for the first connections, in milliseconds.
const DEADLINE: u64 = 50 + 10;
const FIRST_DIAL: u64 = 400;
const AFTER_A_PAUSE: u64 = 60;

/// How long a change by hand may take. A reset asks for the count, and then for the pause of its key. Blocks are given
/// back before a count is changed.
fn most_of(change: &Change) -> u64 {
    let asks_twice = change.what == What::Reset || change.mode.is_leased();
    if asks_twice { 2 * DEADLINE } else { DEADLINE }
}

/// A change by hand is answered within the deadline, as a check is.
pub(super) fn changes_wait_no_longer(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let is_late = |change: &&Change| {
        let overlaps = |pause: &Pause| {
            pause.is_at(change.place) && pause.from <= change.answered && change.asked <= pause.to + AFTER_A_PAUSE
        };
        let waits = change.answered - change.asked > most_of(change) && change.asked > FIRST_DIAL;
        change.mode == mode && waits && !report.pauses.iter().any(overlaps)
    };
    let late: Vec<&Change> = report.changes.iter().filter(is_late).collect();
    let longest = late.iter().max_by_key(|change| change.answered - change.asked)?;
    let (took, most) = (longest.answered - longest.asked, most_of(longest));
    Some(format!("{} changes later than {most} ms; the latest took {took} ms, from {}", late.len(), longest.asked))
}
