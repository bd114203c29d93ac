//! What is charged in the end for requests whose units were held.

use std::ops::RangeInclusive;

use super::amounts::{of_key, spent, times_more};
use crate::history::{Call, Outcome};
use crate::plan::{Plan, fault::Fault, mode::Mode};
use crate::world::Report;

/// How long a settlement is on its way, and how long servers need after a fault, in milliseconds.
const ON_ITS_WAY: u64 = 300;
const RECOVERY: u64 = 1_500;

/// What is spent in the end is the sum of what was settled. Requests beside a fault may be charged what they held.
pub(super) fn settled_is_billed(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if !mode.is_settled() || !mode.is_long() || times_more(report) > 0 && !mode.is_memory() {
        return None;
    }
    for (key, spent, _) in spent(report, mode) {
        let (mut least, mut most) = (0, 0);
        for call in of_key(report, mode, key) {
            let units = units(plan, report, call);
            least += *units.start();
            most += *units.end();
        }
        // A count shows no more units than its limit.
        let least = least.min(mode.policy().limit());
        if !(least..=most).contains(&spent) {
            return Some(format!("key {key}: {spent} units are charged, the bills are {least} to {most}"));
        }
    }
    None
}

/// The units that a call may have been charged.
fn units(plan: &Plan, report: &Report, call: &Call) -> RangeInclusive<u64> {
    let Some(web) = &call.web else { return 0..=0 };
    match (&call.outcome, web.settled) {
        (Outcome::Admitted { .. }, Some(settled)) if is_calm(report, call, web.ended) => settled..=settled,
        (Outcome::Admitted { .. }, Some(settled)) if is_owed(plan, report, call) => settled..=settled,
        // A debt ends with its process.
        (Outcome::Admitted { .. }, Some(settled)) if web.is_local => 0..=settled.max(call.cost),
        (Outcome::Admitted { .. }, Some(settled)) => settled.min(call.cost)..=settled.max(call.cost),
        (Outcome::Gone | Outcome::Failed { .. }, _) => 0..=call.cost,
        _ => 0..=0,
    }
}

/// Whether what a share has admitted is certainly charged later. It was judged without a question to the store, whose
/// fate could be unknown, and after the only fault the store answers everything again. It is charged with what the
/// process asks next, so the request has to end while callers still ask.
fn is_owed(plan: &Plan, report: &Report, call: &Call) -> bool {
    let [fault] = &report.faults[..] else { return false };
    let is_local = call.web.as_ref().is_some_and(|web| web.is_local && web.reached == Some(call.asked));
    let ended = call.web.as_ref().map_or(0, |web| web.ended);
    is_local && fault.kind.is_refusal() && fault.end().max(ended) + RECOVERY < plan.load
}

/// Whether all that belongs to a request was far from all faults.
fn is_calm(report: &Report, call: &Call, ended: u64) -> bool {
    let is_far = |fault: &Fault| ended + ON_ITS_WAY < fault.at || fault.end() + RECOVERY < call.asked;
    report.faults.iter().all(is_far) && call.web.as_ref().is_some_and(|web| !web.is_local)
}
