//! Checks that policies decide without the store: one is blocked, or none limits.

use super::Check;

impl Check {
    /// Whether the store does not get the whole check: a policy is blocked, or there is no charge.
    #[cold]
    pub(crate) fn is_decided_by_policy(&self) -> bool {
        self.charges.is_empty() || self.charges.iter().any(|charge| charge.policy.is_blocked())
    }

    /// The charges that have to be judged beside those under blocked policies; `None` if a blocked policy is enforced,
    /// so that the check is denied whatever they are.
    pub(crate) fn beside_blocked(&self) -> Option<Self> {
        let is_refused = self.charges.iter().any(|charge| charge.policy.is_blocked() && !charge.policy.is_shadow());
        let others = || self.charges.iter().filter(|charge| !charge.policy.is_blocked());
        (!is_refused).then(|| Self::of_distinct(others().cloned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn a_check_is_sent_without_its_blocked_shadow_policies_or_not_at_all() {
        let (blocked, plain) = (Policy::blocked("b").unwrap(), Policy::per_second("p", 9).unwrap());
        let shadow = blocked.clone().with_shadow(true);
        assert!(!Check::new("k", &plain, 1).is_decided_by_policy() && Check::empty().is_decided_by_policy());
        for (policy, others) in [(&blocked, None), (&shadow, Some(1))] {
            let check = Check::new("k", &plain, 1).and("k", policy, 1);
            assert!(check.is_decided_by_policy());
            assert_eq!(check.beside_blocked().map(|check| check.charges().len()), others);
        }
    }
}
