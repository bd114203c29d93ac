//! How long a denial is certain.

use crate::{
    check::Check,
    verdict::{Outcome, Verdict},
};

/// The time for which a denial is certain, in microseconds: until the first unit of a frozen policy is free, a ban
/// ends, or another policy is no longer violated. `None` if no violated policy that decides is frozen, because other
/// checks may then change the verdict at any time. In an allowed check that charged nothing, shadow policies decide. Of
/// alternatives, all have to be frozen.
pub(super) fn certain_wait(check: &Check, verdict: &Verdict) -> Option<u64> {
    let (mut is_frozen, mut certain_us) = (false, u64::MAX);
    // Whether all alternatives so far are frozen, or can never fit.
    let mut are_frozen = true;
    for (charge, outcome) in check.charges().iter().zip(&verdict.outcomes) {
        // The store has to count this denial too.
        if outcome.ban_us == 0 && (charge.policy.denials_counted() || charge.policy.ban().is_some()) {
            return None;
        }
        match outcome {
            Outcome { fits: false, available: 0, retry_after_us: Some(_), .. } => {
                // After a ban the store counts denials again, so the check has to be sent.
                let change_us = if outcome.ban_us > 0 { outcome.ban_us } else { outcome.next_us };
                certain_us = certain_us.min(change_us);
                are_frozen &= verdict.allowed || !charge.policy.is_shadow();
            }
            Outcome { fits: false, retry_after_us, .. } => {
                certain_us = certain_us.min(retry_after_us.unwrap_or(u64::MAX));
                are_frozen &= charge.is_alternative() && retry_after_us.is_none();
            }
            // A charge that fits and is not committed leaves room. If there is no room, the charge's slot has not
            // answered.
            Outcome { fits: true, available: 0, .. } if charge.cost > 0 => return None,
            Outcome { fits: true, .. } => are_frozen = false,
        }
        if !charge.has_alternative() {
            is_frozen |= are_frozen;
            are_frozen = true;
        }
    }
    (is_frozen && verdict.charged(check).next().is_none()).then_some(certain_us)
}
