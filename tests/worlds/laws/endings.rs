//! What is left in the end.

use crate::{
    plan::{Plan, mode::Mode},
    world::{Ending, Report},
};

pub(super) fn all_is_free(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let left: Vec<&str> =
        report.ending.not_free.iter().filter(|(of, _)| *of == mode).map(|(_, key)| key.as_str()).collect();
    let after = report.ending.free_after;
    (!left.is_empty()).then(|| format!("not free {after} ms after all calls have ended: {}", left.join(", ")))
}

pub(super) fn every_key_expires(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    // Once for the world.
    let left = report.ending.left_keys.first().filter(|_| plan.modes.first() == Some(&mode))?;
    Some(format!("{} keys never expire, such as {left}", report.ending.left_keys.len()))
}

pub(super) fn no_panic(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    report.panic.clone().filter(|_| plan.modes.first() == Some(&mode))
}

/// The tasks of a runtime beside one for each connection.
const OTHER_TASKS: usize = 5;
/// The connections of a runtime to a server.
const POOL: usize = 2;

/// Connections are no more than those of the pools.
pub(super) fn connections_are_flat(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let Ending { connections, runtimes, .. } = of_world(plan, report, mode)?;
    let is_above = |(counts, runtimes): (&Vec<usize>, &usize)| counts.iter().any(|count| *count > POOL * runtimes);
    let is_flat = !connections.iter().zip(runtimes).any(is_above);
    (!is_flat).then(|| format!("processes with {runtimes:?} runtimes have {connections:?} connections to the servers"))
}

/// Tasks are no more than those that every process needs, whatever it has been through.
pub(super) fn tasks_are_flat(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let Ending { tasks, runtimes, .. } = of_world(plan, report, mode)?;
    let most = |runtimes: usize| runtimes * (POOL * plan.servers + OTHER_TASKS);
    let is_flat = tasks.iter().zip(runtimes).all(|(tasks, runtimes)| *tasks <= most(*runtimes));
    (!is_flat).then(|| format!("processes with {runtimes:?} runtimes have {tasks:?} tasks"))
}

/// The end of a world, once for all of its modes.
fn of_world<'a>(plan: &Plan, report: &'a Report, mode: Mode) -> Option<&'a Ending> {
    (plan.modes.first() == Some(&mode)).then_some(&report.ending)
}
