//! Whether a decision says what is available, and when more will be.

use crate::plan::Plan;
use crate::plan::mode::{LIMIT, Mode, WINDOW};
use crate::world::{LONGEST, Look, Report, Standing};

/// What rounded times add, in milliseconds.
const SLACK: u64 = 2;

/// How much a clock that is fast or slow may add to a wait.
fn drift(wait: u64) -> u64 {
    wait / 80
}

/// A cost that is available passes, and one unit more does not before the next one is back. A peek says the same.
pub(super) fn available_means_it(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let standing = report.probes.standings.get(&mode)?;
    let Standing { begun, spent, full, held, asked, answered, available, next, .. } = *standing;
    let at_first = || Some(format!("{available} units were available at {asked} to {answered}, {spent} were spent"));
    // A check tries two shards of three, so it may be denied what is available in the third one.
    if mode == Mode::Shards {
        return at_first().filter(|_| available > full);
    }
    let least = LIMIT.saturating_sub(spent + held);
    // A log gives nothing back before its window is over.
    let is_sure = mode == Mode::Log && answered + drift(WINDOW) < begun + WINDOW;
    if available < least || available > full || is_sure && available != least {
        return at_first();
    }
    let is_wrong = |look: &&Look| {
        let is_early = look.answered + drift(next) < asked + next;
        look.cost.is_some_and(|cost| {
            // Time only gives units back.
            let must_pass = cost <= available || cost <= full && is_free(standing, look);
            let (some, all) = (look.is_foretold || look.is_allowed, look.is_foretold && look.is_allowed);
            must_pass && !all || cost > available && is_early && some
        })
    };
    let wrong = standing.looks.iter().find(is_wrong)?;
    Some(format!("{available} units were available at {asked} to {answered}, and then {wrong:?}"))
}

/// Whether all units have to be back.
fn is_free(standing: &Standing, look: &Look) -> bool {
    look.asked > standing.answered + standing.reset + drift(standing.reset)
}

/// More is available when it was said, and not before; all of it when it was said, and not before.
pub(super) fn next_and_reset_are_true(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let standing = report.probes.standings.get(&mode)?;
    let Standing { full, held, asked, answered, available, next, reset, .. } = *standing;
    // Of several shards, one may have more before the one that has most.
    let is_sharded = mode == Mode::Shards;
    let is_before = |look: &Look, wait: u64| look.answered + drift(wait) + SLACK < asked + wait;
    let is_after = |look: &Look, wait: u64| look.asked > answered + wait + drift(wait);
    let is_wrong = |look: &&Look| {
        let more_too_soon = !is_sharded && look.available > available && is_before(look, next);
        let more_too_late = available < full && look.available <= available && is_after(look, next);
        // How long units are held is not known.
        let all_too_soon = !is_sharded && held == 0 && look.available == full && is_before(look, reset);
        let all_too_late = held == 0 && look.available < full && is_after(look, reset);
        look.cost.is_none() && (more_too_soon || more_too_late || all_too_soon || all_too_late)
    };
    let wrong = standing.looks.iter().find(is_wrong);
    (wrong.is_some() || next > reset || reset > LONGEST).then(|| {
        format!(
            "{available} units were available at {asked} to {answered}, more in {next} ms, all in {reset} ms: {wrong:?}"
        )
    })
}
