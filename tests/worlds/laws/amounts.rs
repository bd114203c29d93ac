//! How much is admitted, and what is charged for it.

use std::collections::BTreeSet;

use super::room::{given_back, room_of_resets};
use crate::history::{Call, Outcome};
use crate::plan::fault::{Fault, Kind};
use crate::plan::mode::{LIMIT, Mode, SLOTS, TTL, WINDOW};
use crate::world::{LAG, Report};
use crate::{keys::KEYS, plan::Plan};

/// How often servers have lost charges, or their clock has stepped.
pub(super) fn times_more(report: &Report) -> u64 {
    count(report, |fault| fault.kind.loses_charges() || fault.kind.clock_step().is_some())
}

/// How often one server may admit a limit once more. What a former master has lost is not among it: see [`masters`].
fn fresh_limits(report: &Report) -> u64 {
    times_more(report) - count(report, |fault| fault.kind.leaves_two_masters())
}

/// How long after a former master has lost its office its answers are on their way, and what it has given out is used,
/// in milliseconds: blocks of a lease, and slots.
const ON_ITS_WAY: u64 = 100;
const GIVEN_OUT: u64 = TTL;

/// The masters that have admitted what callers do within a time: one, and one more for each time that two servers were
/// masters. Each of them keeps to what is published for one.
fn masters(report: &Report, mode: Mode, from: u64, to: u64) -> u64 {
    let late = if mode.is_leased() || mode.is_holds() { GIVEN_OUT } else { ON_ITS_WAY };
    let is_near = |fault: &Fault| fault.at <= to && from <= fault.end() + late;
    1 + count(report, |fault| fault.kind.leaves_two_masters() && is_near(fault) && !mode.is_memory())
}

fn count(report: &Report, is_meant: impl Fn(&Fault) -> bool) -> u64 {
    u64::try_from(report.faults.iter().filter(|fault| is_meant(fault)).count()).unwrap_or(u64::MAX)
}

/// The most units of a window that all stores of a world admit, of which each admits `limit`.
pub(super) fn limit_of_stores(report: &Report, mode: Mode, limit: u64) -> u64 {
    (masters(report, mode, 0, u64::MAX) + fresh_limits(report)) * limit
}

/// How often a new limiter has taken the place of one.
fn starts(report: &Report) -> u64 {
    count(report, |fault| fault.kind.starts_limiter())
}

/// After how long a check is unanswered, in milliseconds.
const SILENCE: u64 = 50;

/// The share of a process under a limit.
fn share(plan: &Plan) -> u64 {
    // A process that does not know yet of others has the whole limit.
    if plan.counts_instances() {
        return LIMIT;
    }
    LIMIT.div_ceil(u64::try_from(plan.processes).unwrap_or(u64::MAX))
}

/// What the docs of `Limiter::with_local_fallback` say: beside the limit, the shares of all instances. It is those of
/// all but one if all were cut off at once and the store lacks nothing: no share has admitted what the store had not
/// answered. A process that starts again has its share again.
fn most_of_shares(plan: &Plan, report: &Report) -> u64 {
    let instances = u64::try_from(plan.processes).unwrap_or(u64::MAX);
    let is_lost = |call: &Call| call.by_share && call.answered - call.asked >= SILENCE;
    let lacks = report.calls.iter().any(is_lost);
    let all_but = u64::from(instances == 1 || report.faults.len() <= 1 && !lacks);
    (instances - all_but + starts(report)) * share(plan)
}

/// The most units that one store admits in a window that begins at any time.
fn most_of_a_store(plan: &Plan, mode: Mode) -> Option<u64> {
    let instances = u64::try_from(plan.processes).unwrap_or(u64::MAX);
    Some(match mode {
        Mode::Log
        | Mode::LocalLog
        | Mode::Discovered
        | Mode::LocalHolds
        | Mode::WebLocal
        | Mode::Shards
        | Mode::Acquire
        | Mode::Parts
        | Mode::CreditLog
        | Mode::FirstOf
        | Mode::Told
        | Mode::HandLog
        | Mode::HandHolds
        | Mode::HandMemory
        | Mode::Holds
        | Mode::Pair
        | Mode::Ban
        | Mode::GrowingBan
        | Mode::WebOpen
        | Mode::WebClosed
        | Mode::WebHolds
        | Mode::WebPlans
        | Mode::WebWaits
        | Mode::Upstream
        | Mode::Memory => LIMIT,
        // The larger one of the limits that are replaced.
        Mode::WebLive => LIMIT,
        Mode::Lease | Mode::LeaseBesideHolds | Mode::HandLease => mode.limit(),
        Mode::LeaseOnOff if plan.processes == 1 => mode.limit(),
        // Each process may overlook two blocks of each other one, of at most half of the limit.
        Mode::LeaseOnOff => instances * mode.limit(),
        // A full bucket, and what comes back in a window.
        Mode::Bucket | Mode::PartsBucket | Mode::CreditBucket => 2 * LIMIT,
        // Both ends of a window may be in windows that are full.
        Mode::Window | Mode::PartsWindow | Mode::CreditWindow => 2 * LIMIT,
        Mode::Counter | Mode::PartsCounter | Mode::CreditCounter => 2 * LIMIT,
        Mode::Both
        | Mode::Calendar
        | Mode::Tally
        | Mode::Bill
        | Mode::Slots
        | Mode::LocalSlots
        | Mode::WebBill
        | Mode::WebOwed
        | Mode::WebSlots
        | Mode::MemoryBill
        | Mode::MemorySlots
        | Mode::WaitSlots => return None,
    })
}

/// What an algorithm allows in other times than its window: calls that were asked and answered in them count.
///
/// A bucket gains its limit in a window, so it admits what has come in since the first call, beside its burst. A window
/// of the clock has its limit. A counter adds the window before, by the part of it that is less than a window ago.
pub(super) fn as_published(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let drifts = report.faults.iter().any(|fault| fault.drift().is_some());
    let is_meant = mode.is_bucket() || mode.is_window() || mode.is_counter();
    if !is_meant || drifts || fresh_limits(report) > 0 {
        return None;
    }
    let masters = |from: u64, to: u64| masters(report, mode, from, to);
    for key in 0..KEYS {
        let given = |from: u64, to: u64| given_back(report, mode, key, from, to);
        let mut calls: Vec<(u64, u64, u64)> = of_key(report, mode, key)
            .map(|call| (call.asked, call.answered, call.charged()))
            .filter(|(_, _, units)| *units > 0)
            .collect();
        calls.sort_unstable();
        let wrong = match mode.is_bucket() {
            true => calls.iter().enumerate().find_map(|(index, _)| more_than_comes_in(&calls[index..], masters, given)),
            false => calls.iter().find_map(|call| more_than_a_window(&calls, *call, masters, given, mode.is_counter())),
        };
        if let Some(wrong) = wrong {
            return Some(format!("key {key}: {wrong}"));
        }
    }
    None
}

/// Units by when they were asked and answered, from the first one on.
fn more_than_comes_in(
    calls: &[(u64, u64, u64)],
    masters: impl Fn(u64, u64) -> u64,
    given: impl Fn(u64, u64) -> u64,
) -> Option<String> {
    let (start, ..) = *calls.first()?;
    // By the times of the answers, because a call may be answered before one that was asked earlier.
    let mut ended: Vec<(u64, u64)> = calls.iter().map(|(_, answered, units)| (*answered, *units)).collect();
    ended.sort_unstable();
    let mut sum = 0;
    for (index, (answered, units)) in ended.iter().enumerate() {
        sum += units;
        let more_now = ended.get(index + 1).is_some_and(|(next, _)| next == answered);
        let limit = masters(start, *answered) * LIMIT;
        let most = limit + (answered - start + 1) * limit / WINDOW + given(start, *answered);
        if !more_now && sum > most {
            return Some(format!("{sum} units of {most} from {start} to {answered} ms"));
        }
    }
    None
}

/// The units of the window of a call up to its question, with those of the window before if they count.
fn more_than_a_window(
    calls: &[(u64, u64, u64)],
    call: (u64, u64, u64),
    masters: impl Fn(u64, u64) -> u64,
    given: impl Fn(u64, u64) -> u64,
    with_window_before: bool,
) -> Option<String> {
    let (asked, answered, cost) = call;
    let start = asked - asked % WINDOW;
    let masters = masters(start.saturating_sub(WINDOW), answered);
    let limit = masters * LIMIT;
    if answered >= start + WINDOW {
        return None;
    }
    let within = |from: u64, to: u64| {
        calls.iter().filter(move |(asked, answered, _)| *asked >= from && *answered < to).map(|(_, _, units)| *units)
    };
    // Those that were answered before this one was asked are charged.
    let before: u64 = within(start.saturating_sub(WINDOW), start).sum();
    let given = given(if with_window_before { start.saturating_sub(WINDOW) } else { start }, answered);
    let left = (start + WINDOW).saturating_sub(answered + 1);
    // Each master rounds down.
    let carried = (before * left / WINDOW).saturating_sub(masters - 1);
    let carried = if with_window_before && start > 0 { carried } else { 0 };
    let sum = carried + within(start, asked).sum::<u64>() + cost;
    let limit = limit + given;
    (sum > limit).then(|| format!("{sum} units of {limit} in the window from {start}, at {answered} ms"))
}

/// The shortest window of a server's clock. A clock that is fast ends windows earlier.
pub(super) fn window(report: &Report) -> u64 {
    let is_fast = report.faults.iter().any(|fault| fault.drift().is_some_and(|drift| drift > 0));
    if is_fast { WINDOW - 10 - 5 } else { WINDOW }
}

/// The windows that begin with a call, and the units in each: those of calls that were asked and answered in it.
fn windows<'a>(calls: impl Iterator<Item = &'a Call>, window: u64) -> impl Iterator<Item = (u64, u64)> {
    let units = |call: &Call| (call.asked, call.answered, call.charged().min(call.cost));
    let mut calls: Vec<(u64, u64, u64)> = calls.map(units).filter(|(_, _, units)| *units > 0).collect();
    calls.sort_unstable();
    (0..calls.len()).map(move |index| {
        let (start, ..) = calls[index];
        let begun = calls[index..].iter().take_while(|(asked, ..)| *asked < start + window);
        let inside = begun.filter(|(_, answered, _)| *answered < start + window);
        (start, inside.map(|(_, _, units)| units).sum())
    })
}

/// A call counts in a window if it was asked and answered in it.
pub(super) fn never_over(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let most_of_a_store = most_of_a_store(plan, mode)? + fresh_limits(report) * mode.limit();
    let most_of_shares = if mode.is_local() { most_of_shares(plan, report) } else { 0 };
    let window = window(report);
    for key in keys(report, mode) {
        for (start, units) in windows(of_key(report, mode, key), window) {
            let most = masters(report, mode, start, start + window) * most_of_a_store + most_of_shares;
            let most = most + given_back(report, mode, key, start, start + window);
            let most = most + room_of_resets(plan, report, mode, key, start, start + window);
            if units > most {
                return Some(format!("key {key}: {units} units of {most} within {window} ms from {start}"));
            }
        }
    }
    None
}

/// Of calls that were asked and answered within a window, the store admits its limit, and each instance its share.
pub(super) fn nobody_exceeds_its_part(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if !mode.is_local() {
        return None;
    }
    let most_of_a_store = most_of_a_store(plan, mode)? + fresh_limits(report) * mode.limit();
    let window = window(report);
    for key in keys(report, mode) {
        for (start, units) in windows(of_key(report, mode, key).filter(|call| !call.by_share), window) {
            let most = masters(report, mode, start, start + window) * most_of_a_store;
            if units > most {
                return Some(format!(
                    "key {key}: {units} units of {most} of the store within {window} ms from {start}"
                ));
            }
        }
        let most = (1 + starts(report)) * share(plan);
        for process in 0..plan.processes {
            let is_of = |call: &&Call| call.by_share && call.place.process == process;
            let mut windows = windows(of_key(report, mode, key).filter(is_of), window);
            if let Some((start, units)) = windows.find(|(_, units)| *units > most) {
                let what = format!("{units} units of {most} of the share of process {process}");
                return Some(format!("key {key}: {what} within {window} ms from {start}"));
            }
        }
    }
    None
}

pub(super) fn slots_at_once(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let instances = u64::try_from(plan.processes).unwrap_or(1);
    let shares = instances * if plan.counts_instances() { SLOTS } else { SLOTS.div_ceil(instances) };
    let local = if mode.is_local() { shares + starts(report) * SLOTS } else { 0 };
    let most_of_a_store = SLOTS + fresh_limits(report) * SLOTS;
    for key in keys(report, mode) {
        let mut changes: Vec<(u64, i64)> = of_key(report, mode, key)
            .filter_map(|call| call.worked)
            .filter(|(begun, ended)| begun < ended)
            .flat_map(|(begun, ended)| [(begun, 1), (ended, -1)])
            .collect();
        // Ends come before beginnings.
        changes.sort_unstable();
        let mut running = 0;
        for (at, change) in changes {
            running += change;
            let most = masters(report, mode, at, at) * most_of_a_store + local;
            if running > most as i64 {
                return Some(format!("key {key}: {running} of {most} slots at once at {at} ms"));
            }
        }
    }
    None
}

/// What a check of two keys charges to one key, it charges to the other one. A process that is killed cannot refund
/// what one of two servers has charged for its calls in flight. While a slot moves, a charge without an answer cannot
/// be refunded.
pub(super) fn all_or_nothing(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if mode != Mode::Both || times_more(report) > 0 {
        return None;
    }
    let first: u64 = spent(report, mode).map(|(_, spent, _)| spent).sum();
    let second = *report.ending.second_spent.get(&mode)?;
    let admitted: u64 = report.calls.iter().filter(|call| call.mode == mode).map(Call::charged).sum();
    let kills = || report.faults.iter().filter(|fault| fault.kind == Kind::Kill).map(|fault| fault.at);
    let moves = || report.faults.iter().filter(|fault| fault.kind == Kind::Move);
    let has_no_answer =
        |call: &Call| matches!(call.outcome, Outcome::Gone | Outcome::Failed { may_have_charged: true, .. });
    // With some time for the refunds of callers that had left just before.
    let in_flight = |call: &&Call| {
        let is_gone = matches!(call.outcome, Outcome::Gone);
        is_gone && kills().any(|at| (call.asked..call.asked + WINDOW).contains(&at))
            || has_no_answer(call) && moves().any(|fault| (fault.at..=fault.end()).contains(&call.answered))
    };
    let of_mode = report.calls.iter().filter(|call| call.mode == mode);
    let may_differ_by: u64 = of_mode.filter(in_flight).map(|call| call.cost).sum();
    let differs = first.abs_diff(second) > may_differ_by && report.ending.silent.is_empty();
    differs.then(|| format!("charged {first} to the first keys and {second} to the second ones, admitted {admitted}"))
}

/// How long after its last unit a block is settled, in milliseconds.
const SETTLED_WITHIN: u64 = 300;

/// What is charged is what was admitted, and at most what has an unknown fate.
pub(super) fn charged_is_admitted(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    // What the share has admitted is charged later. A process that is killed or away for long has not told what it has
    // spent of a block.
    let tells_all = report.faults.iter().all(|fault| fault.kind.spares_store());
    if fresh_limits(report) > 0 || mode == Mode::WebOwed || mode.is_leased() && !tells_all {
        return None;
    }
    let way = if mode.is_leased() { SETTLED_WITHIN } else { 40 };
    for (key, spent, at) in spent(report, mode) {
        let window = if mode.is_long() { u64::MAX } else { WINDOW };
        // What was asked since then is in the window for certain; what may have been charged since then may be.
        let since = at.saturating_sub(window);
        let is_sure = |call: &&Call| mode.is_long() || call.asked > since + way;
        let sure = of_key(report, mode, key).filter(|call| is_sure(call) && !may_be_forgotten(report, call));
        let least: u64 = sure.map(|call| call.charged()).sum();
        // If the end of a hold is forgotten, its time-to-live charges what was held.
        let units = |call: &Call| if may_be_forgotten(report, call) { call.in_the_way() } else { call.may_charge() };
        let maybe = |call: &&Call| mode.is_long() || call.charged_by.max(call.answered) + way >= since;
        let most: u64 = of_key(report, mode, key).filter(maybe).map(units).sum();
        if !(least..=most).contains(&spent) {
            return Some(format!("key {key}: {spent} units are charged, {least} to {most} were admitted"));
        }
    }
    None
}

/// Whether a former master may have counted a call or its end, which is lost with it.
fn may_be_forgotten(report: &Report, call: &Call) -> bool {
    let until = call.charged_by.max(call.answered);
    let is_near = |fault: &Fault| fault.at <= until + LAG && call.asked <= fault.end() + ON_ITS_WAY;
    report.faults.iter().any(|fault| fault.kind.leaves_two_masters() && is_near(fault))
}

/// The keys that were charged.
pub(super) fn keys(report: &Report, mode: Mode) -> BTreeSet<u64> {
    report.calls.iter().filter(|call| call.mode == mode).map(|call| call.key).collect()
}

pub(super) fn of_key(report: &Report, mode: Mode, key: u64) -> impl Iterator<Item = &Call> {
    report.calls.iter().filter(move |call| call.mode == mode && call.key == key)
}

/// Key, units that were spent in the end, and when that was asked.
pub(super) fn spent(report: &Report, mode: Mode) -> impl Iterator<Item = (u64, u64, u64)> {
    let of_mode = report.ending.spent.iter().filter(move |((of, _), _)| *of == mode);
    of_mode.map(|((_, key), (spent, at))| (*key, *spent, *at))
}
