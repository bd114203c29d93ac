//! How long callers wait, and for how long they get no verdict.

use crate::{
    history::{Call, Outcome},
    plan::{Plan, mode::Mode},
    world::Report,
};

/// The deadline, and what the timers of both sides add, in milliseconds.
const DEADLINE: u64 = 50 + 10;
/// How long a process may wait for its first connections, in milliseconds.
const FIRST_DIAL: u64 = 400;
/// After a pause, what has arrived is read first.
const AFTER_A_PAUSE: u64 = 60;
/// By when checks get verdicts after the last fault, in milliseconds.
const RECOVERY: u64 = 1_500;

pub(super) fn nobody_waits_longer(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    // Waiting is what `acquire` is for.
    if mode == Mode::Acquire {
        return None;
    }
    let is_excused = |call: &Call| {
        let overlaps = |from: u64, to: u64| from <= call.answered && call.asked <= to + AFTER_A_PAUSE;
        call.asked <= FIRST_DIAL
            || report.pauses.iter().any(|pause| pause.is_at(call.place) && overlaps(pause.from, pause.to))
    };
    let waits = |call: &&Call| call.mode == mode && call.answered - call.asked > DEADLINE && !is_excused(call);
    let late: Vec<&Call> = report.calls.iter().filter(waits).collect();
    let longest = late.iter().max_by_key(|call| call.answered - call.asked)?;
    let took = longest.answered - longest.asked;
    Some(format!("{} answers later than {DEADLINE} ms; the latest took {took} ms, from {}", late.len(), longest.asked))
}

pub(super) fn a_verdict_after_the_last_fault(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let since = plan.healed_at().max(FIRST_DIAL) + RECOVERY;
    let failed = report.calls.iter().filter(|call| call.mode == mode && call.asked > since);
    let errors: Vec<(&Call, &String)> = failed
        .filter_map(|call| match &call.outcome {
            Outcome::Failed { what, .. } => Some((call, what)),
            _ => None,
        })
        .collect();
    if let Some((_, what)) = report.ending.silent.iter().find(|(of, _)| *of == mode) {
        return Some(format!("no answer in the end: {what}"));
    }
    let (call, what) = errors.first()?;
    Some(format!("{} calls without a verdict after recovery; the first at {} ms: {what}", errors.len(), call.asked))
}
