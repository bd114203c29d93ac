//! How long a denial is certain.

use crate::check::Check;
use crate::verdict::{Outcome, Verdict};

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{policy::Policy, verdict::Source};

    /// The certain wait of a denial, or of a check that shadow policies alone would deny.
    fn certain(check: &Check, allowed: bool, outcomes: &[Outcome]) -> Option<u64> {
        let outcomes = outcomes.iter().copied().collect();
        certain_wait(check, &Verdict { allowed, source: Source::Store, time_us: 0, outcomes })
    }

    fn policy(name: &str) -> Policy {
        Policy::per_minute(name, 10).unwrap()
    }

    const SPENT: Outcome =
        Outcome { fits: false, available: 0, retry_after_us: Some(7), next_us: 5, reset_us: 90, ban_us: 0 };
    /// Some units are left, but not enough.
    const SHORT: Outcome = Outcome { available: 2, retry_after_us: Some(4), ..SPENT };
    const NEVER: Outcome = Outcome { retry_after_us: None, ..SHORT };
    const ROOMY: Outcome = Outcome { fits: true, ..NEVER };
    /// The slot of the charge has not answered.
    const SILENT: Outcome = Outcome { available: 0, ..ROOMY };

    #[test]
    fn a_denial_is_certain_as_long_as_a_policy_that_decides_is_spent() {
        let (a, b) = (policy("a"), policy("b"));
        let [paid, free] = [1, 0].map(|cost| Check::new("k", &a, 1).and("k", &b, cost));
        let first = Check::first_of("k", [&a, &b], 1);
        let shadow = Check::new("k", &a.clone().with_shadow(true), 1);
        let beside_shadow = shadow.clone().and("k", &b, 1);
        let cases: [(&Check, bool, &[Outcome], Option<u64>); 12] = [
            (&paid, false, &[SPENT, ROOMY], Some(5)),
            (&paid, false, &[SHORT, SPENT], Some(4)),
            (&paid, false, &[SHORT, ROOMY], None),
            (&paid, false, &[SPENT, SILENT], None),
            (&free, false, &[SPENT, SILENT], Some(5)),
            (&first, false, &[SPENT, SPENT], Some(5)),
            (&first, false, &[NEVER, SPENT], Some(5)),
            (&first, false, &[SHORT, SPENT], None),
            (&first, false, &[SPENT, SHORT], None),
            (&shadow, true, &[SPENT], Some(5)),
            (&beside_shadow, false, &[SPENT, SPENT], Some(5)),
            (&beside_shadow, false, &[SPENT, SHORT], None),
        ];
        for (number, (check, allowed, outcomes, expected)) in cases.into_iter().enumerate() {
            assert_eq!(certain(check, allowed, outcomes), expected, "case {number}");
        }
    }

    /// The store has to count the denials that follow the ban.
    #[test]
    fn a_denial_that_the_store_counts_is_certain_during_a_ban_alone() {
        let banned = Outcome { next_us: 8, ban_us: 6, ..SPENT };
        let plain = policy("p");
        for policy in [plain.clone().ban_after(1, Duration::from_secs(9)), plain.with_denials_counted(true)] {
            let check = Check::new("k", &policy, 1);
            assert_eq!([certain(&check, false, &[SPENT]), certain(&check, false, &[banned])], [None, Some(6)]);
        }
    }
}
