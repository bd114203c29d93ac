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
