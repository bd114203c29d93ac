//! The policies that a process has decided by, so that their limits are written to gauges once and not with each check.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::policy::Policy;

/// The most policies whose limits are written.
const MOST: usize = 1_024;

/// Limit and window of policies, by name.
#[derive(Debug, Default)]
pub(super) struct SeenPolicies(RwLock<HashMap<Box<str>, (u64, u64)>>);

impl SeenPolicies {
    /// Calls `write` if a policy is new, or has another limit or window than when it was seen last.
    pub(super) fn on_news(&self, policy: &Policy, write: impl FnOnce()) {
        let now = (policy.limit(), policy.window_us());
        let seen = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let known = seen.get(policy.name());
        if known == Some(&now) || known.is_none() && seen.len() >= MOST {
            return;
        }
        drop(seen);
        let mut seen = self.0.write().unwrap_or_else(PoisonError::into_inner);
        seen.insert(policy.name().into(), now);
        // Under the lock, so that no earlier limit is written after a later one.
        write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_limit_is_written_once_and_none_of_further_policies_than_fit() {
        let seen = SeenPolicies::default();
        let writes = |number: usize, limit: u64| {
            let mut written = false;
            seen.on_news(&Policy::per_minute(format!("p{number}"), limit).unwrap(), || written = true);
            written
        };
        assert!((0..MOST).all(|number| writes(number, 9)));
        assert!(!(0..=MOST).any(|number| writes(number, 9)));
        assert!(writes(3, 8) && !writes(3, 8));
    }
}
