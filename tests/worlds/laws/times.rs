//! How long callers wait, and for how long they get no verdict.

use crate::history::{Call, Outcome};
use crate::place::{Pause, Place};
use crate::plan::fault::{ELECTED_AFTER, Fault, Kind};
use crate::plan::mode::{MAX_WAIT, Mode};
use crate::{plan::Plan, world::Report};

/// The deadline, in milliseconds.
const SILENCE: u64 = 50;
/// The deadline, and what the timers of both sides add.
const DEADLINE: u64 = SILENCE + 10;
/// How long a process may wait for its first connections, in milliseconds.
const FIRST_DIAL: u64 = 400;
/// After a pause, what has arrived is read first.
const AFTER_A_PAUSE: u64 = 60;
/// By when checks get verdicts after the last fault, in milliseconds.
const RECOVERY: u64 = 1_000;
/// The same on a cluster, where each range of slots has a breaker of its own and a part of the checks. When a probe is
/// due, half a second after the last one, no check may come. Of those that come together within the next half a second,
/// one is sent.
const RECOVERY_OF_A_CLUSTER: u64 = 1_500;
/// What each further runtime may add: its connections are its own, and the breaker sends one probe after the other,
/// each on the runtime of its caller.
const RECOVERY_OF_A_RUNTIME: u64 = 500;
/// The longest pause between two dials, in milliseconds.
const PAUSE_OF_DIALS: u64 = 400;
/// The unanswered calls of a process to a server until it gives up connections that the network has forgotten.
const UNANSWERED: usize = 3;

/// The longest time between two probes, and how long one is waited for, in milliseconds.
const PROBE_EVERY: u64 = 500 + SILENCE;

/// The most round trips of a check whose store is well, and what else it may take, in milliseconds.
const ROUND_TRIPS: u64 = 4;
const WORK: u64 = 5;

/// Where nothing is wrong, a check waits for its round trips, and for nothing else.
pub(super) fn no_wait_without_a_reason(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    // Some modes are there to wait, and looking a plan up takes time.
    if !report.faults.is_empty() || mode.waits() || mode == Mode::WebPlans {
        return None;
    }
    let of_mode = report.calls.iter().filter(|call| call.mode == mode && !matches!(call.outcome, Outcome::Gone));
    let mut late = of_mode.filter(|call| is_late_without_a_reason(plan, report, call));
    let first = late.next()?;
    let (took, most) = (first.answered - first.asked, longest_without_a_reason(plan));
    Some(format!("{} answers later than {most} ms; the first took {took} ms, from {}", 1 + late.count(), first.asked))
}

/// How long a check takes whose store is well, in milliseconds.
fn longest_without_a_reason(plan: &Plan) -> u64 {
    ROUND_TRIPS * (2 * (plan.delay + plan.jitter) + 2) + WORK
}

/// Whether an answer takes longer than its round trips, where nothing is wrong with the process.
pub(super) fn is_late_without_a_reason(plan: &Plan, report: &Report, call: &Call) -> bool {
    let is_excused = |call: &Call| {
        let is_away = |pause: &Pause| {
            pause.process == call.place.process && pause.from <= call.answered && call.asked <= pause.to + AFTER_A_PAUSE
        };
        may_dial(report, call) || report.pauses.iter().any(is_away)
    };
    call.answered - call.asked > longest_without_a_reason(plan) && !is_excused(call)
}

/// Whether the runtime of a call may still dial for the first time, which it does when a check needs the store: before,
/// all of its checks were denied from memory. A look-up of a plan takes its time.
fn may_dial(report: &Report, call: &Call) -> bool {
    let starts = report.faults.iter().filter(|fault| fault.kind.starts_limiter());
    let starts = starts.filter(|start| start.process == call.place.process && start.at <= call.asked);
    let since = starts.map(|start| start.at).max().unwrap_or(0);
    let is_before =
        |other: &&Call| other.place == call.place && other.asked >= since && other.asked + FIRST_DIAL < call.asked;
    report.calls.iter().filter(is_before).all(|other| match other.outcome {
        _ if other.mode.is_memory() => true,
        Outcome::Denied { .. } => other.asked == other.answered || other.mode == Mode::WebPlans,
        Outcome::Admitted { .. } => other.cost == 0,
        Outcome::Failed { .. } | Outcome::Gone => false,
    })
}

/// How long callers that wait for units want to wait, and what a last check may take beyond that, in milliseconds.
const LONGEST_WAIT: u64 = MAX_WAIT + 100 + DEADLINE;
/// How much longer a request may wait that has a place in the queue, in milliseconds.
const LONGER: u64 = MAX_WAIT / 10;

pub(super) fn nobody_waits_longer(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let most = match mode {
        Mode::WebWaits => LONGEST_WAIT + LONGER,
        Mode::Acquire | Mode::WaitSlots | Mode::Upstream => LONGEST_WAIT,
        _ => DEADLINE,
    };
    let is_excused = |call: &Call| {
        let overlaps = |from: u64, to: u64| from <= call.answered && call.asked <= to + AFTER_A_PAUSE;
        may_dial(report, call)
            || report.pauses.iter().any(|pause| pause.is_at(call.place) && overlaps(pause.from, pause.to))
    };
    let waits = |call: &&Call| call.mode == mode && call.answered - call.asked > most && !is_excused(call);
    let late: Vec<&Call> = report.calls.iter().filter(waits).collect();
    let longest = late.iter().max_by_key(|call| call.answered - call.asked)?;
    let took = longest.answered - longest.asked;
    Some(format!("{} answers later than {most} ms; the latest took {took} ms, from {}", late.len(), longest.asked))
}

/// By when a caller gets verdicts after the last fault. A connection that is forgotten looks like a silent server,
/// until some calls of its process have got no answer, on whatever runtime. Then all runtimes know.
fn verdict_by(plan: &Plan, report: &Report, place: Place) -> u64 {
    let recovery = if plan.is_cluster() { RECOVERY_OF_A_CLUSTER } else { RECOVERY };
    // Connections that a server closes before they have been used count as failed dials.
    let closes = report.faults.iter().any(|fault| fault.kind == Kind::CloseIdle);
    let recovery = if closes { recovery + PAUSE_OF_DIALS } else { recovery };
    // In a split, the others follow the server that was elected. Their connections to the former master are silent.
    let split = match &report.faults[..] {
        [split] if split.kind == Kind::Split && split.process != place.process => Some(split),
        _ => None,
    };
    let healed_at = split.map_or(plan.healed_at(), |split| split.at + ELECTED_AFTER).max(FIRST_DIAL);
    let healed_by = healed_at + recovery + RECOVERY_OF_A_RUNTIME * (plan.runtimes as u64 - 1);
    // Each of these faults forgets the connections that were made after the one before.
    let is_of = |fault: &&Fault| fault.kind == Kind::HalfOpen && fault.process == place.process || split.is_some();
    let Some(since) = report.faults.iter().filter(is_of).map(|fault| fault.at).max() else { return healed_by };
    // A service says 503 whatever the error is, so silence is what took the deadline.
    let is_unanswered = |call: &&Call| {
        let is_silence = matches!(call.outcome, Outcome::Failed { .. }) && call.answered - call.asked >= SILENCE;
        call.place.process == place.process && call.asked >= since && is_silence
    };
    let mut ends: Vec<u64> = report.calls.iter().filter(is_unanswered).map(|call| call.answered).collect();
    ends.sort_unstable();
    ends.truncate(UNANSWERED * plan.servers);
    // A check that fails local and exceeds its share probes the store without waiting, so its caller sees no silence.
    let probes_unseen = plan.modes.iter().any(|mode| mode.is_local());
    let unseen = if probes_unseen { UNANSWERED.saturating_sub(ends.len()) as u64 } else { 0 };
    healed_by.max(ends.last().copied().unwrap_or(since) + unseen * PROBE_EVERY + recovery)
}

/// The round trips of a dial through sentinels.
const TRIPS_OF_A_DIAL: u64 = 7;

/// Whether the first check after a quiet time may find that its connections were closed meanwhile, and dial for longer
/// than its deadline. A server closes connections that are idle, when it ends, and when it becomes a replica. Nothing
/// dials before that: a server that closes idle connections would be dialled again and again, although no check needs a
/// connection.
fn dials_too_long(plan: &Plan, report: &Report) -> bool {
    let longest = TRIPS_OF_A_DIAL * 2 * (plan.delay + plan.jitter);
    let closes = report.faults.iter().any(|fault| fault.kind.closes_connections());
    plan.sentinels > 0 && closes && longest > SILENCE
}

pub(super) fn a_verdict_after_the_last_fault(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let failed = report.calls.iter().filter_map(|call| match &call.outcome {
        Outcome::Failed { what, .. } if call.mode == mode => Some((call, what)),
        _ => None,
    });
    let errors: Vec<(&Call, &String)> =
        failed.filter(|(call, _)| call.asked > verdict_by(plan, report, call.place)).collect();
    let silent = report.ending.silent.iter().find(|(of, _)| *of == mode && !dials_too_long(plan, report));
    if let Some((_, what)) = silent {
        return Some(format!("no answer in the end: {what}"));
    }
    let (call, what) = errors.first()?;
    Some(format!("{} calls without a verdict after recovery; the first at {} ms: {what}", errors.len(), call.asked))
}

/// The first checks after a quiet time have a verdict in time, whatever had happened before.
pub(super) fn the_first_burst_has_verdicts(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    // Nothing has revealed yet that connections are forgotten.
    let forgets = report.faults.iter().any(|fault| fault.kind == Kind::HalfOpen);
    // Once for the world.
    if forgets || dials_too_long(plan, report) || plan.modes.first() != Some(&mode) {
        return None;
    }
    let burst = &report.probes.burst;
    // A runtime dials now if it has no callers, or if none of them needs Redis.
    let dials = plan.callers < plan.modes.len() * plan.runtimes || plan.modes.iter().all(|mode| mode.is_memory());
    let most = if dials { FIRST_DIAL } else { DEADLINE };
    let is_bad = |(took, result): &&(u64, Result<(), String>)| *took > most || result.is_err();
    let (took, result) = burst.iter().find(is_bad)?;
    let bad = burst.iter().filter(is_bad).count();
    Some(format!("{bad} of {} checks after a quiet time, such as {result:?} after {took} ms", burst.len()))
}

/// The longest way for which a check during a move takes less than its deadline, in milliseconds: it may take eight
/// round trips.
const SHORT_WAY: u64 = 1;

/// A slot that moves is no outage: checks have verdicts meanwhile.
pub(super) fn a_move_is_no_outage(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let only_moves = !report.faults.is_empty() && report.faults.iter().all(|fault| fault.kind == Kind::Move);
    if !only_moves || plan.delay + plan.jitter > SHORT_WAY {
        return None;
    }
    let calls = report.calls.iter().filter(|call| call.mode == mode && call.asked > FIRST_DIAL);
    let failed: Vec<&Call> = calls.filter(|call| matches!(call.outcome, Outcome::Failed { .. })).collect();
    let first = failed.first()?;
    Some(format!("{} calls without a verdict; the first at {}: {:?}", failed.len(), first.asked, first.outcome))
}
