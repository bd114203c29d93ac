//! Whether Retry-After tells the truth: callers who are alone with their key come back just before and just after it.

use std::collections::BTreeMap;

use super::amounts::times_more;
use crate::history::{Call, Outcome};
use crate::plan::mode::{Mode, WINDOW};
use crate::{keys::LONE, plan::Plan, world::Report};

/// What rounded times make of a window, in milliseconds, and what a clock that is fast or slow by 1 % adds.
const SLACK: u64 = 4;
const DRIFT: u64 = WINDOW / 80;

fn quotas(call: &Call) -> Option<&[(String, u64, u64)]> {
    Some(&call.web.as_ref()?.seen.as_ref()?.quotas)
}

pub(super) fn retry_after_of_responses_is_true(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    if times_more(report) > 0 && !mode.is_memory() {
        return None;
    }
    let drifts = report.faults.iter().any(|fault| fault.drift().is_some());
    let slack = SLACK + if drifts { DRIFT } else { 0 };
    let mut by_key: BTreeMap<u64, Vec<&Call>> = BTreeMap::new();
    for call in report.calls.iter().filter(|call| call.mode == mode && call.key >= LONE) {
        by_key.entry(call.key).or_default().push(call);
    }
    by_key.values().find_map(|calls| {
        // What follows an unknown fate may find units that came late.
        let known =
            calls.iter().take_while(|call| matches!(call.outcome, Outcome::Admitted { .. } | Outcome::Denied { .. }));
        let known: Vec<&&Call> = known.collect();
        known.windows(2).find_map(|pair| {
            let Outcome::Denied { retry_after: Some(wait) } = pair[0].outcome else { return None };
            let (denied, next) = (pair[0], pair[1]);
            // Another plan has another wait.
            if quotas(denied) != quotas(next) {
                return None;
            }
            let is_late = next.asked > denied.answered + wait + slack && next.cost <= denied.cost;
            let is_early = next.answered + slack < denied.asked + wait && next.cost >= denied.cost;
            let is_wrong = is_late && next.is_denied() || is_early && !next.is_denied();
            is_wrong.then(|| {
                let (cost, asked, outcome) = (next.cost, next.asked, &next.outcome);
                format!("denied at {} for {wait} ms; cost {cost} at {asked}: {outcome:?}", denied.answered)
            })
        })
    })
}
