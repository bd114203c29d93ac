//! What is left in the end.

use crate::plan::Plan;
use crate::plan::fault::{Fault, Kind};
use crate::plan::mode::{BLOCK_TTL, LONGEST_BAN, Mode, SLOTS, TTL, WINDOW};
use crate::world::{Ending, Report};

pub(super) fn all_is_free(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let left: Vec<&str> =
        report.ending.not_free.iter().filter(|(of, _)| *of == mode).map(|(_, key)| key.as_str()).collect();
    let after = report.ending.free_after;
    (!left.is_empty()).then(|| format!("not free {after} ms after all calls have ended: {}", left.join(", ")))
}

/// How long before the end has become quiet the last call has ended, in milliseconds.
const QUIET: u64 = 700;
/// How long ends that have failed are on their way after a fault, in milliseconds.
const RECOVERY: u64 = 1_500;
/// How long it may take to see that a count is free, in milliseconds.
const SEEN_AFTER: u64 = 400;

/// What a caller has held is free soon after it has ended its work or has gone, and what was charged when its window is
/// over. Only what a killed process has held may stay until its time-to-live, and is charged then. So may what a server
/// holds that has forgotten the end of it, because it has become the master without the last writes.
pub(super) fn all_is_free_soon(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let excuses = |fault: &Fault| fault.kind == Kind::HalfOpen || fault.kind.clock_step().is_some();
    if report.faults.iter().any(excuses) || plan.healed_at() + RECOVERY > plan.load {
        return None;
    }
    let Ending { kept_slots, freed, quiet_at, .. } = &report.ending;
    let leaves_holds = |fault: &&Fault| {
        matches!(fault.kind, Kind::Kill | Kind::Rewind | Kind::LoseMaster) || fault.kind.leaves_two_masters()
    };
    let killed_at = report.faults.iter().filter(leaves_holds).map(|fault| fault.at).max();
    let kept = kept_slots.iter().find(|(of, _)| *of == mode && killed_at.is_none());
    if let Some((_, key)) = kept {
        return Some(format!("slots of {key} were taken when all calls had ended long ago"));
    }
    // A counter counts the window before in part, and slots are not charged. What a share has admitted is charged with
    // the next question of its process, which may be the one here, or as soon as it fits.
    let lasts = match mode {
        _ if mode.is_counter() => 2 * WINDOW,
        Mode::GrowingBan => LONGEST_BAN,
        // Units that are charged by hand beyond the limit come back one after the other, and those that an instance
        // owes are charged later.
        Mode::CreditBucket => 4 * WINDOW,
        _ if mode.is_credited() && !report.faults.is_empty() => 2 * WINDOW,
        _ if mode.is_slots() => 0,
        _ if mode.is_local() && !report.faults.is_empty() => 2 * WINDOW,
        _ => WINDOW,
    };
    let time_to_live = match mode {
        _ if mode.is_leased() => BLOCK_TTL,
        _ if mode.is_holds() => TTL,
        _ => 0,
    };
    let dead_at = killed_at.map_or(0, |at| at + time_to_live + lasts);
    let by = lasts.saturating_sub(QUIET).max(dead_at.saturating_sub(*quiet_at)) + SEEN_AFTER;
    let (_, key, after) = freed.iter().find(|(of, _, after)| *of == mode && *after > by)?;
    Some(format!("{key} was free {after} ms after all was quiet, and not after {by} ms"))
}

/// What a runtime has held is free soon after it has ended and its process has used the limiter again.
pub(super) fn an_ended_runtime_leaves_nothing(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let free = report.probes.left.filter(|free| mode == Mode::Slots && *free < SLOTS)?;
    Some(format!("{free} of {SLOTS} slots are free after a runtime has ended"))
}

/// What a process has held is free when it has closed its limiter, and may end.
pub(super) fn close_leaves_nothing(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let free = report.probes.closed.filter(|free| mode == Mode::Slots && *free < SLOTS)?;
    Some(format!("{free} of {SLOTS} slots are free after a limiter was closed"))
}

/// What a process has spent from its blocks, and no more, is charged when it has closed its limiter, and may end.
pub(super) fn close_settles_blocks(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let (spent, charged) = report.probes.settled.filter(|(spent, charged)| mode == Mode::Lease && spent != charged)?;
    Some(format!("{charged} units are charged after a limiter was closed that had spent {spent}"))
}

/// What a runtime has spent from its blocks is charged, and no more is held, soon after it has ended.
pub(super) fn others_settle_blocks(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let found = report.probes.settled_by_others;
    let (spent, charged) = found.filter(|(spent, charged)| mode == Mode::Lease && spent != charged)?;
    Some(format!("{charged} units are charged or held after a runtime has ended that had spent {spent}"))
}

/// A block of a killed process ends within two seconds, and leaves its window then.
pub(super) fn blocks_expire(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let kept = report.probes.kept.filter(|kept| mode == Mode::Lease && *kept > 0)?;
    Some(format!("{kept} units are charged or held long after a process was killed"))
}

pub(super) fn every_key_expires(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    // Once for the world.
    let left = report.ending.left_keys.first().filter(|_| plan.modes.first() == Some(&mode))?;
    Some(format!("{} keys never expire, such as {left}", report.ending.left_keys.len()))
}

pub(super) fn no_panic(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    report.panic.clone().filter(|_| plan.modes.first() == Some(&mode))
}

/// The tasks that a runtime keeps beside one for each connection: one that notices its end, one that measures its
/// stalls for two seconds after a call, and one that looks after open holds.
const OTHER_TASKS: usize = 3;
/// The connections of a runtime to a server.
const POOL: usize = 2;

/// Connections are no more than those of the pools.
pub(super) fn connections_are_flat(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let Ending { connections, runtimes, .. } = of_world(plan, report, mode)?;
    let is_above = |(counts, runtimes): (&Vec<usize>, &usize)| counts.iter().any(|count| *count > POOL * runtimes);
    let is_flat = !connections.iter().zip(runtimes).any(is_above);
    (!is_flat).then(|| format!("processes with {runtimes:?} runtimes have {connections:?} connections to the servers"))
}

/// The tasks that stay are no more than those that every process needs, whatever it has been through. What comes and
/// goes is no leak: once a second, a question to each sentinel is on its way, with a task of its own.
pub(super) fn tasks_are_flat(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let Ending { tasks, runtimes, .. } = of_world(plan, report, mode)?;
    // A task that asks sentinels, and one for the connection to each.
    let watch = if plan.sentinels > 0 { plan.sentinels + 1 } else { 0 };
    let most = |runtimes: usize| runtimes * (POOL * plan.servers + OTHER_TASKS + watch);
    let is_flat = tasks.iter().zip(runtimes).all(|(tasks, runtimes)| *tasks <= most(*runtimes));
    (!is_flat).then(|| format!("processes with {runtimes:?} runtimes have {tasks:?} tasks"))
}

/// The end of a world, once for all of its modes.
fn of_world<'a>(plan: &Plan, report: &'a Report, mode: Mode) -> Option<&'a Ending> {
    (plan.modes.first() == Some(&mode)).then_some(&report.ending)
}
