//! Room that changes by hand may have made.

use crate::{
    changes::{Change, End, What},
    plan::{
        Plan,
        mode::{LIMIT, Mode},
    },
    world::Report,
};

/// The most units that may have been given back to a key by hand within a time.
pub(super) fn given_back(report: &Report, mode: Mode, key: u64, from: u64, to: u64) -> u64 {
    let credits = report.changes.iter().filter(|change| change.what == What::Credit);
    let of_key = credits.filter(|credit| (credit.mode, credit.key) == (mode, key));
    of_key.filter(|credit| credit.asked <= to && from <= credit.made_by).map(Change::most).sum()
}

/// The most units that resets within a time may have made room for. Others go on with the blocks that they have.
pub(super) fn room_of_resets(plan: &Plan, report: &Report, mode: Mode, key: u64, from: u64, to: u64) -> u64 {
    let of_key = |change: &&Change| (change.mode, change.key) == (mode, key);
    let is_near = |change: &&Change| change.what == What::Reset && change.asked <= to && from <= change.made_by;
    let resets = report.changes.iter().filter(of_key).filter(is_near).filter(|reset| may_be_made(reset)).count() as u64;
    let blocks = if mode.is_leased() { plan.processes as u64 } else { 0 };
    resets * LIMIT * (1 + blocks)
}

/// Whether a change has not certainly failed.
pub(super) fn may_be_made(change: &Change) -> bool {
    !matches!(change.end, End::Failed { may_have_changed: false, .. })
}
