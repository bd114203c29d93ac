//! Whether denials have a reason.

use super::amounts::keys;
use super::by_hand::{given_back_before, recorded};
use super::standing::{forgotten_by, may_be_banned};
use crate::plan::fault::{Fault, Kind};
use crate::plan::mode::{LIMIT, Mode, SLOTS, TTL, WINDOW};
use crate::world::{LAG, Report};
use crate::{history::Call, place::Pause, plan::Plan};

/// What a rounded time may add, in milliseconds.
const SLACK: u64 = 5;
/// How long the end of a slot may be on its way, in milliseconds.
const END_OF_A_SLOT: u64 = 150;
/// The same while runtimes end or stand still, and the store is well: until another runtime sends it.
const END_BESIDE_RUNTIMES: u64 = 500;
/// How long servers need after a fault, in milliseconds.
const RECOVERY: u64 = 1_500;

/// A denied cost did not fit beside all units that may have been spent or held at that time.
pub(super) fn no_denial_without_a_reason(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let (limit, reach) = reach_of(report, mode).filter(|_| mode != Mode::FirstOf)?;
    let mut wrong = vec![];
    for key in keys(report, mode) {
        let calls: Vec<&Call> = report.calls.iter().filter(|call| call.mode == mode && call.key == key).collect();
        let taken = Taken::of(plan, report, &calls, reach);
        let is_judged =
            |call: &&&Call| call.is_denied() && !may_exceed_share(report, call) && !may_be_banned(report, call);
        for denied in calls.iter().filter(is_judged) {
            let given = given_back_before(report, denied, |from, to| taken.left_between(from, to));
            // What was asked until the answer, without what was out of the way before the question.
            let spent = taken.between(denied.asked, denied.answered).saturating_sub(given);
            // A limit that is replaced denies by what it is.
            let in_force = denied.web.as_ref().and_then(|web| web.limit).filter(|_| mode == Mode::WebLive);
            if spent + denied.cost <= in_force.unwrap_or(limit) {
                wrong.push((*denied, spent));
            }
        }
    }
    let (denied, spent) = wrong.iter().min_by_key(|(denied, _)| denied.answered)?;
    Some(format!(
        "{} denials without a reason; the first: {} units of key {} at {} to {} ms, when at most {spent} of {limit} were taken",
        wrong.len(),
        denied.cost,
        denied.key,
        denied.asked,
        denied.answered,
    ))
}

/// The limit of a mode, and how long what was charged may stand in the way, in milliseconds. `None` if denials have
/// reasons that callers do not see.
pub(super) fn reach_of(report: &Report, mode: Mode) -> Option<(u64, u64)> {
    let (limit, reach) = match mode {
        Mode::Log | Mode::Bucket | Mode::Window | Mode::Pair | Mode::Parts => (LIMIT, WINDOW + SLACK),
        Mode::PartsBucket | Mode::PartsWindow | Mode::FirstOf | Mode::Told => (LIMIT, WINDOW + SLACK),
        Mode::CreditLog | Mode::CreditWindow | Mode::HandLog | Mode::HandMemory => (LIMIT, WINDOW + SLACK),
        Mode::WebOpen | Mode::WebClosed | Mode::WebLive | Mode::Memory => (LIMIT, WINDOW + SLACK),
        // The window before has a part as well.
        Mode::Counter | Mode::PartsCounter | Mode::CreditCounter => (LIMIT, 2 * WINDOW + SLACK),
        Mode::Holds | Mode::WebHolds => (LIMIT, WINDOW + SLACK),
        Mode::Slots | Mode::LocalSlots | Mode::WebSlots | Mode::MemorySlots => (SLOTS, END_OF_A_SLOT),
        // Blocks of others, other shards, bans, shares and waiters ahead are reasons that callers do not see.
        _ => return None,
    };
    if report.faults.iter().any(|fault| fault.kind.clock_step().is_some()) {
        return None;
    }
    let reach = if is_well(report, mode) { END_BESIDE_RUNTIMES } else { reach };
    // With a slow clock a window lasts longer.
    let is_slow = report.faults.iter().any(|fault| fault.drift().is_some_and(|drift| drift < 0));
    Some((limit, reach + if is_slow { WINDOW / 50 } else { 0 }))
}

/// Whether nothing is wrong with the store of slots.
fn is_well(report: &Report, mode: Mode) -> bool {
    mode == Mode::Slots && report.faults.iter().all(|fault| fault.kind.spares_store())
}

/// The most units of a key that may have been spent or held at a time.
pub(super) struct Taken {
    asked: Sums,
    left: Sums,
}

impl Taken {
    pub(super) fn of(plan: &Plan, report: &Report, calls: &[&Call], reach: u64) -> Self {
        let until = |call: &Call| match call.worked {
            Some((_, ended)) if is_well(report, call.mode) => ended,
            _ => in_the_way_until(report, call),
        };
        let recorded = calls.first().map(|call| recorded(report, call.mode, call.key)).unwrap_or_default();
        let left_by = |call: &Call| {
            let left_by = until(call) + reach + 1;
            forgotten_by(plan, report, call).map_or(left_by, |by| by.min(left_by))
        };
        let checked = calls.iter().map(|call| (call.asked, left_by(call), call.in_the_way()));
        let recorded =
            recorded.into_iter().map(|(asked, until, units)| (asked, until.saturating_add(reach + 1), units));
        let all: Vec<(u64, u64, u64)> = checked.chain(recorded).collect();
        let asked = Sums::of(all.iter().map(|(asked, _, units)| (*asked, *units)));
        let left = Sums::of(all.iter().map(|(_, left_by, units)| (*left_by, *units)));
        Self { asked, left }
    }

    /// What was asked until the answer, without what was out of the way before the question.
    pub(super) fn between(&self, asked: u64, answered: u64) -> u64 {
        self.asked.until(answered) - self.left.until(asked)
    }

    /// What has left the way within a time.
    fn left_between(&self, from: u64, to: u64) -> u64 {
        self.left.until(to) - self.left.until(from)
    }
}

/// How long instances keep to their shares after a fault, in milliseconds: until the breaker closes, and for a second
/// more, because others may notice later that the store is back.
const RECOVERY_OF_SHARES: u64 = RECOVERY + 1_000;

/// Whether a denied call may have exceeded the share of its instance, which callers do not see.
fn may_exceed_share(report: &Report, denied: &Call) -> bool {
    let is_near = |fault: &Fault| fault.at <= denied.answered && denied.asked <= fault.end() + RECOVERY_OF_SHARES;
    denied.mode.is_local() && report.faults.iter().any(|fault| !fault.kind.spares_store() && is_near(fault))
}

/// A process that stood still ends its slots when it runs again.
fn in_the_way_until(report: &Report, call: &Call) -> u64 {
    let until = match call.worked {
        Some((_, ended)) if ends_soon(report, call) => ended,
        Some((_, ended)) => call.charged_by.max(ended),
        None => call.charged_by.max(call.answered),
    };
    held_until(report, call, until).unwrap_or(until).max(until)
}

/// Until when the server that is the master in the end may hold the units of a call that has ended by this time: if a
/// former master alone has learned of the end, or it had come just before the server's data were lost.
fn held_until(report: &Report, call: &Call, ended: u64) -> Option<u64> {
    let is_near = |fault: &&Fault| {
        let has_met = call.asked <= fault.end() && fault.at <= ended + LAG;
        let is_lost = matches!(fault.kind, Kind::Rewind | Kind::LoseMaster) && ended <= fault.end();
        (fault.kind.leaves_two_masters() || is_lost) && call.mode.is_holds() && has_met
    };
    report.faults.iter().filter(is_near).map(|fault| fault.at + TTL).max()
}

/// Whether the slot of a request has to be free soon after the request has ended. It does not matter why the request
/// has ended, nor whether its runtime still runs: the process has to live, and its messages have to reach the server.
fn ends_soon(report: &Report, call: &Call) -> bool {
    let Some(web) = call.web.as_ref().filter(|web| web.is_judged && !web.is_local && !web.is_killed) else {
        return false;
    };
    let (since, until) = (web.ended.saturating_sub(RECOVERY), web.ended + 2 * END_OF_A_SLOT);
    let is_far = |fault: &Fault| fault.kind == Kind::EndRuntime || until < fault.at || fault.end() < since;
    let is_away = |block: &Pause| block.is_at(call.place) && block.from <= until && web.ended <= block.to;
    report.faults.iter().all(is_far) && !report.blocks.iter().any(is_away)
}

/// Sums of units by time.
struct Sums(Vec<(u64, u64)>);

impl Sums {
    fn of(units: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut sums: Vec<(u64, u64)> = units.collect();
        sums.sort_unstable();
        let mut total = 0;
        for (_, sum) in &mut sums {
            total += *sum;
            *sum = total;
        }
        Self(sums)
    }

    /// The units until a time, and at it.
    fn until(&self, at: u64) -> u64 {
        let count = self.0.partition_point(|(time, _)| *time <= at);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}
