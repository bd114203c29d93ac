//! Whether a caller gets as much as fits, and no more than it wants.

use super::denials::{Taken, reach_of};
use crate::plan::{Plan, mode::Mode};
use crate::{history::Outcome, world::Report};

pub(super) fn no_more_than_asked(_: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let mut calls = report.calls.iter().filter(|call| call.mode == mode && mode.is_parts());
    let wrong = calls.find(|call| match call.outcome {
        Outcome::Admitted { charged } => charged == 0 || charged > call.cost,
        _ => false,
    })?;
    Some(format!("key {}: {} units were asked for at {}: {:?}", wrong.key, wrong.cost, wrong.asked, wrong.outcome))
}

/// One unit more than a caller has got did not fit.
pub(super) fn as_much_as_fits(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let (limit, reach) = reach_of(report, mode).filter(|_| mode.is_parts())?;
    for key in super::amounts::keys(report, mode) {
        let of_key: Vec<_> = super::amounts::of_key(report, mode, key).collect();
        let taken = Taken::of(plan, report, &of_key, reach);
        for call in of_key.iter().filter(|call| call.charged() > 0 && call.charged() < call.cost) {
            // With those of the call itself.
            let (charged, spent) = (call.charged(), taken.between(call.asked, call.answered));
            if spent < limit {
                let (cost, asked, answered) = (call.cost, call.asked, call.answered);
                return Some(format!(
                    "key {key}: {charged} of {cost} units at {asked} to {answered} ms, when at most {spent} of {limit} \
                     were taken"
                ));
            }
        }
    }
    None
}
