//! What is left in the end.

use crate::{
    plan::{Plan, mode::Mode},
    world::Report,
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
    let most = POOL * plan.runtimes;
    // Once for the world.
    let connections = Some(&report.ending.connections).filter(|_| plan.modes.first() == Some(&mode))?;
    let too_many = connections.iter().flatten().any(|count| *count > most);
    too_many.then(|| format!("connections of processes to servers: {connections:?}, at most {most}"))
}

/// Tasks are no more than those that every process needs, whatever it has been through.
pub(super) fn tasks_are_flat(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let most = plan.runtimes * (POOL * plan.servers + OTHER_TASKS);
    let tasks = Some(&report.ending.tasks).filter(|_| plan.modes.first() == Some(&mode))?;
    tasks.iter().any(|count| *count > most).then(|| format!("tasks of processes: {tasks:?}, at most {most}"))
}
