//! The policies that a process has decided by, so that their limits are written to gauges once and not with each check.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use crate::policy::Policy;

/// The most policies that are remembered. Further ones are written to their gauges with each check.
const MOST: usize = 1_024;

/// Limit and window of policies, by name.
#[derive(Debug, Default)]
pub(super) struct SeenPolicies(RwLock<HashMap<Box<str>, (u64, u64)>>);

impl SeenPolicies {
    /// Whether a policy is new, or has another limit or window than when it was seen last. Remembers it.
    pub(super) fn is_news(&self, policy: &Policy) -> bool {
        let now = (policy.limit(), policy.window_us());
        if self.0.read().unwrap_or_else(PoisonError::into_inner).get(policy.name()) == Some(&now) {
            return false;
        }
        let mut seen = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < MOST || seen.contains_key(policy.name()) {
            seen.insert(policy.name().into(), now);
        }
        true
    }
}
