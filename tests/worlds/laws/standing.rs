//! Bans by hand, and counts that are reset.

use super::{amounts, room::may_be_made};
use crate::changes::{Change, End, What};
use crate::plan::{Plan, mode::Mode};
use crate::{history::Call, world::Report};

/// By when all instances notice a change by hand, in milliseconds: a second, and the way.
const NOTICED_WITHIN: u64 = 1_000 + 60;
/// What rounded times may add, in milliseconds.
const SLACK: u64 = 5;

fn of_key(report: &Report, mode: Mode, key: u64) -> impl Iterator<Item = &Change> {
    report.changes.iter().filter(move |change| (change.mode, change.key) == (mode, key))
}

fn is_done(change: &Change) -> bool {
    matches!(change.end, End::Done(_))
}

/// No check of a key is admitted while the key is certainly banned. Other instances spend the blocks that they hold
/// until they notice the ban.
pub(super) fn a_ban_holds(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let drifts = report.faults.iter().any(|fault| fault.drift().is_some());
    if !mode.is_by_hand() || !mode.is_memory() && (drifts || amounts::times_more(report) > 0) {
        return None;
    }
    let noticed_within = if mode.is_leased() { NOTICED_WITHIN } else { 0 };
    for ban in report.changes.iter().filter(|ban| ban.mode == mode && ban.what == What::Ban && is_done(ban)) {
        let until = ban.asked + ban.units;
        // Another ban takes the place of this one.
        let ends = of_key(report, mode, ban.key).filter(|other| *other != ban && may_be_made(other));
        let ends: Vec<&Change> = ends.filter(|end| end.made_by >= ban.asked).collect();
        let is_admitted = |call: &&Call| {
            let is_banned = call.asked > ban.answered + noticed_within && call.answered + SLACK < until;
            let is_ended = ends.iter().any(|end| end.asked <= call.answered);
            (call.charged() > 0 || call.worked.is_some()) && is_banned && !is_ended
        };
        if let Some(call) = amounts::of_key(report, mode, ban.key).find(is_admitted) {
            return Some(format!(
                "key {}: {} units passed at {} to {} ms, banned at {} until {until}",
                ban.key, call.cost, call.asked, call.answered, ban.answered
            ));
        }
    }
    None
}

/// Whether a denied call may have been banned.
pub(super) fn may_be_banned(report: &Report, denied: &Call) -> bool {
    let changes: Vec<&Change> = of_key(report, denied.mode, denied.key).collect();
    let is_in_force = |ban: &&&Change| {
        let is_ended = |end: &&Change| {
            let is_end = matches!(end.what, What::Unban | What::Reset) && is_done(end);
            let late = if end.place.process == denied.place.process { 0 } else { NOTICED_WITHIN };
            is_end && end.asked > ban.made_by && end.answered + late < denied.asked
        };
        let may_last = ban.asked <= denied.answered && denied.asked <= ban.made_by + ban.units + ban.units / 50 + SLACK;
        ban.what == What::Ban && may_be_made(ban) && may_last && !changes.iter().any(is_ended)
    };
    changes.iter().any(|ban| is_in_force(&ban))
}

/// When a reset has put what a call was charged out of the way, for all processes.
pub(super) fn forgotten_by(plan: &Plan, report: &Report, call: &Call) -> Option<u64> {
    let loses = report.faults.iter().any(|fault| fault.kind.loses_charges());
    if loses && !call.mode.is_memory() {
        return None;
    }
    let late = if plan.processes > 1 && !call.mode.is_memory() { NOTICED_WITHIN } else { 0 };
    let resets = of_key(report, call.mode, call.key).filter(|reset| reset.what == What::Reset && is_done(reset));
    let after = resets.filter(|reset| reset.asked > call.charged_by.max(call.answered));
    after.map(|reset| reset.answered + late + 1).min()
}
