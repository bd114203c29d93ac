//! The entries of a decision on several charges: one for each charge, and one for alternatives together.

use std::sync::Arc;

use super::policy_decision::PolicyDecision;
use crate::check::{Charge, Check};
use crate::verdict::Outcome;

/// The policies of a decision on several charges. Takes the charges out of `check`.
#[inline(never)]
pub(super) fn of_several(check: &mut Check, outcomes: &[Outcome]) -> Arc<[PolicyDecision]> {
    let decide = |(charge, outcome): (Charge, &Outcome)| {
        let partition_key = charge.policy.partition_key(&charge.key);
        PolicyDecision::new(charge, partition_key, outcome)
    };
    if !check.has_alternatives() {
        return check.take().zip(outcomes).map(decide).collect();
    }
    let mut from = 0;
    let named = check.groups().map(|group| {
        let number = from + outcomes.get(from..from + group.len()).map_or(0, |outcomes| named(group, outcomes));
        from += group.len();
        number
    });
    let named: Vec<usize> = named.collect();
    let judged = check.take().zip(outcomes).enumerate();
    judged.filter(|(number, _)| named.contains(number)).map(|(_, judged)| decide(judged)).collect()
}

/// The number of the alternative that a decision names: the one that is charged, or the one with the shortest wait. For
/// a cost of 0, the one that a cost of 1 would be charged to.
fn named(charges: &[Charge], outcomes: &[Outcome]) -> usize {
    let is_peek = charges.iter().all(|charge| charge.cost == 0);
    let has_room = |outcome: &Outcome| if is_peek { outcome.available > 0 } else { outcome.fits };
    let wait = |outcome: &Outcome| match is_peek {
        true => outcome.next_us,
        false => outcome.retry_after_us.unwrap_or(u64::MAX),
    };
    let shortest = || outcomes.iter().enumerate().min_by_key(|(_, outcome)| wait(outcome)).map(|(number, _)| number);
    outcomes.iter().position(has_room).or_else(shortest).unwrap_or(0)
}
