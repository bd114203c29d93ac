//! Whether denials have a reason.

use crate::{
    history::Call,
    plan::{
        Plan,
        mode::{LIMIT, Mode, SLOTS, WINDOW},
    },
    world::Report,
};

/// What a rounded time may add, in milliseconds.
const SLACK: u64 = 5;
/// How long the end of a slot may be on its way, in milliseconds.
const END_OF_A_SLOT: u64 = 150;

/// A denied cost did not fit beside all units that may have been spent or held at that time.
pub(super) fn no_denial_without_a_reason(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let (limit, reach) = match mode {
        Mode::Log | Mode::Bucket | Mode::Window | Mode::Pair => (LIMIT, WINDOW + SLACK),
        // The window before has a part as well.
        Mode::Counter => (LIMIT, 2 * WINDOW + SLACK),
        Mode::Holds => (LIMIT, WINDOW + SLACK),
        Mode::Slots | Mode::LocalSlots => (SLOTS, END_OF_A_SLOT),
        // Blocks of others, other shards, bans, shares and waiters ahead are reasons that callers do not see.
        _ => return None,
    };
    if report.faults.iter().any(|fault| fault.kind.clock_step().is_some()) {
        return None;
    }
    // A process that stood still ends its slots when it runs again.
    let is_in_the_way = |call: &Call, denied: &Call| {
        let by = match call.worked {
            Some((_, ended)) => call.charged_by.max(ended),
            None => call.charged_by.max(call.answered),
        };
        call.mode == mode && call.key == denied.key && call.asked <= denied.answered && by + reach >= denied.asked
    };
    let mut wrong = vec![];
    for denied in report.calls.iter().filter(|call| call.mode == mode && call.is_denied()) {
        let spent: u32 = report.calls.iter().filter(|call| is_in_the_way(call, denied)).map(Call::in_the_way).sum();
        if spent + denied.cost <= limit {
            wrong.push((denied, spent));
        }
    }
    let (denied, spent) = wrong.first()?;
    Some(format!(
        "{} denials without a reason; the first: {} units of key {} at {} to {} ms, when at most {spent} of {limit} were taken",
        wrong.len(),
        denied.cost,
        denied.key,
        denied.asked,
        denied.answered,
    ))
}
