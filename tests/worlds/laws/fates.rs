//! Whether callers learn what was charged.

use crate::{
    history::Outcome,
    plan::{Plan, mode::Mode},
    world::Report,
};

/// What a caller learns of a charge is what the servers have done: an admission is one charge, a call that was not
/// charged is none, and a call of unknown fate is one at most.
pub(super) fn errors_tell_the_fate(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let mut calls = report.calls.iter().filter(|call| call.mode == mode && mode == Mode::Told);
    let wrong = calls.find(|call| {
        let charges = report.done.charges(call.key);
        match call.outcome {
            Outcome::Admitted { .. } => charges != 1,
            Outcome::Denied { .. } | Outcome::Failed { may_have_charged: false, .. } => charges > 0,
            Outcome::Gone | Outcome::Failed { may_have_charged: true, .. } => charges > 1,
        }
    })?;
    let charges = report.done.charges(wrong.key);
    let (key, asked, answered, outcome) = (wrong.key, wrong.asked, wrong.answered, &wrong.outcome);
    Some(format!("key {key} was charged {charges} times, asked at {asked}, and at {answered}: {outcome:?}"))
}
