//! Room that changes by hand may have made.

use crate::changes::{Change, End, What};
use crate::plan::mode::{BLOCK_TTL, Mode};
use crate::{plan::Plan, world::Report};

/// The most units that may have been given back to a key by hand within a time.
pub(super) fn given_back(report: &Report, mode: Mode, key: u64, from: u64, to: u64) -> u64 {
    let credits = report.changes.iter().filter(|change| change.what == What::Credit);
    let of_key = credits.filter(|credit| (credit.mode, credit.key) == (mode, key));
    of_key.filter(|credit| credit.asked <= to && from <= credit.made_by).map(Change::most).sum()
}

/// The most units that resets within a time may have made room for. Others go on with the blocks that they have.
pub(super) fn room_of_resets(plan: &Plan, report: &Report, mode: Mode, key: u64, from: u64, to: u64) -> u64 {
    let of_key = |change: &&Change| (change.mode, change.key) == (mode, key);
    let resets = report.changes.iter().filter(of_key).filter(|change| change.what == What::Reset);
    let resets: Vec<&Change> = resets.filter(|reset| reset.asked <= to && may_be_made(reset)).collect();
    let made_after = |at: u64| resets.iter().filter(|reset| at <= reset.made_by).count() as u64;
    let of_blocks =
        if mode.is_leased() { made_after(from.saturating_sub(BLOCK_TTL)) * plan.processes as u64 } else { 0 };
    (made_after(from) + of_blocks) * mode.limit()
}

/// Whether a change has not certainly failed.
pub(super) fn may_be_made(change: &Change) -> bool {
    !matches!(change.end, End::Failed { may_have_changed: false, .. })
}
