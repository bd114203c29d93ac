//! Whether Retry-After is true.

use crate::history::{Call, Outcome};
use crate::plan::mode::{FEW_DENIALS, LONGEST_BAN, Mode, WINDOW};
use crate::plan::{Plan, fault::Fault};
use crate::world::{Report, Wait};

/// A process remembers a denial from the arrival of the reply on, so for as much longer as the reply was on its way: at
/// most a deadline, in milliseconds, and what rounded times add. After a pause the reply is read later still.
const SLACK: u64 = 50 + 10;

/// Nothing of at least a denied cost is admitted before its Retry-After, while only time makes room.
pub(super) fn retry_after_is_not_too_long(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let only_time_makes_room = matches!(mode, Mode::Log | Mode::Bucket | Mode::Window | Mode::Ban | Mode::GrowingBan);
    let is_lost = |fault: &Fault| fault.kind.loses_charges() || fault.kind.clock_step().is_some();
    if !only_time_makes_room || report.faults.iter().any(is_lost) || !report.pauses.is_empty() {
        return None;
    }
    let of_mode: Vec<&Call> = report.calls.iter().filter(|call| call.mode == mode).collect();
    let admitted = |call: &&&Call| call.charged() > 0;
    for denied in &of_mode {
        let Outcome::Denied { retry_after: Some(wait) } = denied.outcome else { continue };
        // A clock may be fast.
        let until = denied.asked + wait - wait / 80;
        let early = of_mode.iter().filter(admitted).find(|call| {
            let is_between = call.asked > denied.answered && call.answered + SLACK < until;
            call.key == denied.key && call.cost >= denied.cost && is_between
        });
        if let Some(early) = early {
            return Some(format!(
                "{} units of key {} were denied at {} for {wait} ms, and {} units passed at {}",
                denied.cost, denied.key, denied.answered, early.cost, early.asked
            ));
        }
    }
    None
}

/// No ban is longer than the longest. Only the third ban of a key is longer than the window, and each follows on
/// denials of its own.
pub(super) fn bans_grow_step_by_step(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let is_stepped = report.faults.iter().any(|fault| fault.kind.clock_step().is_some() || fault.drift().is_some());
    if mode != Mode::GrowingBan || is_stepped {
        return None;
    }
    let of_mode: Vec<&Call> = report.calls.iter().filter(|call| call.mode == mode).collect();
    of_mode.iter().find_map(|denied| {
        let Outcome::Denied { retry_after: Some(wait) } = denied.outcome else { return None };
        let may_be_denied =
            |call: &&&Call| call.key == denied.key && call.asked <= denied.answered && call.charged() == 0;
        let denials = of_mode.iter().filter(may_be_denied).count();
        let is_too_long = wait > LONGEST_BAN + SLACK || wait > WINDOW + SLACK && denials < 3 * FEW_DENIALS as usize;
        is_too_long.then(|| {
            format!("key {} was denied at {} for {wait} ms, after {denials} denials", denied.key, denied.answered)
        })
    })
}

/// A caller that is denied and waits Retry-After alone passes, and no caller passes before.
pub(super) fn retry_after_is_true(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let Wait { cost, asked, denied, retry_after, before, after } = report.probes.waits.get(&mode)?;
    let what = format!("{cost} units were denied at {asked} to {denied} for {retry_after} ms");
    // The count of a window before weighs less with time, so the counter is not exact.
    let is_exact = mode != Mode::Counter;
    match (before, after) {
        (Some((from, to, true)), _) if is_exact && *to < asked + retry_after - retry_after / 80 => {
            Some(format!("{what}, and passed at {from} to {to}"))
        }
        (_, Ok(true)) => None,
        (_, Ok(false)) => Some(format!("{what}, and were denied again after that")),
        (_, Err(error)) => Some(format!("{what}, and then: {error}")),
    }
}
