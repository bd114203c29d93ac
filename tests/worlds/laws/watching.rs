//! Whether watching changes anything.

use crate::history::{Call, Outcome};
use crate::plan::{Plan, Watch, mode::Mode};
use crate::world::{self, Report};

/// The same world with observers that do not panic has the same calls and commands. Without any observers, a store
/// asks its server one question less, which may change the order of what follows.
///
/// Judged where each process has one runtime. The clocks of several runtimes differ by microseconds of real time, so
/// what they do in the same millisecond may change its order from run to run.
pub(super) fn watching_changes_nothing(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if plan.watch != Watch::Panics || plan.runtimes > 1 || plan.modes.first() != Some(&mode) {
        return None;
    }
    let calm = world::run(&Plan { watch: Watch::Calm, ..plan.clone() });
    let differ = report.calls.iter().zip(&calm.calls).find(|(panicking, calm)| !are_same(panicking, calm));
    if let Some((panicking, calm)) = differ {
        return Some(format!("panicking {panicking:?}, calm {calm:?}"));
    }
    let (calls, commands) = (report.calls.len(), report.commands);
    let differs = calls != calm.calls.len() || report.trace != calm.trace;
    differs.then(|| {
        format!("panicking {calls} calls and {commands} commands, calm {} and {}", calm.calls.len(), calm.commands)
    })
}

/// Whether two calls are the same, but for a millisecond of the wait: clocks of runtimes differ by microseconds of real
/// time, so a wait may end just before or just after a millisecond.
fn are_same(panicking: &Call, calm: &Call) -> bool {
    match (&panicking.outcome, &calm.outcome) {
        (Outcome::Denied { retry_after: Some(one) }, Outcome::Denied { retry_after: Some(other) })
            if one.abs_diff(*other) <= 1 =>
        {
            Call { outcome: calm.outcome.clone(), ..panicking.clone() } == *calm
        }
        _ => panicking == calm,
    }
}
