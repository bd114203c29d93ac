//! What responses say: whether their fields agree with what happened to the request.

use crate::history::{Call, Web};
use crate::plan::{Plan, fault::Fault, mode::Mode};
use crate::service::{SMALL_LIMIT, seen::Seen};
use crate::world::Report;

/// For how long answers of a slow way still come after it, in milliseconds.
const LATE: u64 = 200;

/// The first response that a judge finds wrong.
fn first(report: &Report, mode: Mode, judge: impl Fn(&Call, &Web, &Seen) -> Option<String>) -> Option<String> {
    report.calls.iter().filter(|call| call.mode == mode).find_map(|call| {
        let web = call.web.as_ref()?;
        let seen = web.seen.as_ref()?;
        let wrong = judge(call, web, seen)?;
        Some(format!("key {} cost {} asked at {}: {wrong}: {seen:?}", call.key, call.cost, call.asked))
    })
}

/// The fields of a response are those of its verdict.
pub(super) fn fields_agree(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    first(report, mode, |call, web, seen| match seen.status {
        200 if web.is_exempt || !web.is_judged => {
            (seen.has_fields() || seen.retry_after.is_some()).then(|| "fields without a verdict".to_owned())
        }
        200 => one_policy(call, web, seen).or_else(|| {
            let (quota, left) = (seen.quotas[0].1, seen.left[0].1);
            let fits = left + call.cost <= quota && seen.retry_after.is_none();
            (!fits).then(|| "more is left than can be".to_owned())
        }),
        429 => one_policy(call, web, seen).or_else(|| {
            let (left, wait) = (&seen.left[0], seen.retry_after.unwrap_or(0));
            let exact_wait = seen.exact_wait.unwrap_or(u64::MAX);
            let wrong = match () {
                () if wait == 0 => "no Retry-After",
                () if exact_wait > wait * 1_000 => "Retry-After is too short",
                () if left.2 > wait => "the units are back later than Retry-After",
                () if left.1 >= call.cost => "what is left would have been enough",
                () if !seen.must_not_be_stored => "a denial may be stored",
                () => return None,
            };
            Some(wrong.to_owned())
        }),
        _ => None,
    })
}

/// The fields name one policy, with the limit that was in force when the request was sent.
fn one_policy(call: &Call, web: &Web, seen: &Seen) -> Option<String> {
    let ([quota], [left]) = (&*seen.quotas, &*seen.left) else { return Some("not one policy".to_owned()) };
    let is_window_right = quota.2 == call.mode.window_in_seconds();
    let is_limit_right = match web.limit {
        Some(limit) => quota.1 == limit,
        None => [call.mode.policy().limit(), SMALL_LIMIT].map(u64::from).contains(&quota.1),
    };
    let is_right = quota.0 == call.mode.name() && left.0 == quota.0 && is_window_right && is_limit_right;
    (!is_right).then(|| format!("not the policy, whose limit is {:?}", web.limit))
}

/// A refused request does not reach its handler, and a handler's request is allowed.
pub(super) fn refused_requests_are_not_handled(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let handled = |call: &&Call| {
        call.mode == mode
            && call.web.as_ref().is_some_and(|web| {
                let is_refused = web.seen.as_ref().is_some_and(|seen| seen.status != 200);
                web.reached.is_some() == is_refused && web.seen.is_some() || web.reached.is_some() && !web.is_allowed
            })
    };
    let call = report.calls.iter().find(handled)?;
    Some(format!("key {} asked at {}: {:?}", call.key, call.asked, call.web))
}

/// Without a verdict, a request gets what its failure policy says. While answers come too late, a check that waits
/// behind others of its process counts as one of too many, which every policy refuses.
pub(super) fn the_failure_policy_decides(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let may_be_too_many = |call: &Call| {
        let is_slow = |fault: &&Fault| fault.kind.is_slow() && fault.process == call.place.process;
        let overlaps = |fault: &Fault| fault.at <= call.answered && call.asked <= fault.end() + LATE;
        report.faults.iter().filter(is_slow).any(overlaps)
    };
    first(report, mode, |call, web, seen| {
        let is_open = call.mode == Mode::WebOpen;
        let is_wrong = match seen.status {
            // The handler receives an exempt request at once.
            200 if web.is_exempt => web.reached != Some(call.asked),
            200 if web.is_local => !call.mode.is_local(),
            200 => !web.is_judged && !is_open,
            429 => web.is_exempt,
            503 => {
                let is_whole = seen.retry_after == Some(1) && seen.must_not_be_stored && !seen.has_fields();
                let is_policy_open = (is_open || call.mode.is_local()) && !may_be_too_many(call);
                web.is_exempt || is_policy_open || call.mode.is_memory() || !is_whole
            }
            _ => true,
        };
        is_wrong.then(|| "not what the failure policy says".to_owned())
    })
}
