//! Shares: policies divided by the number of instances.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use crate::{
    policy::{Algorithm, Policy},
    store::Store,
};

/// The policies by which one instance counts under a policy. `judging` and `mirror` share a count; `unsettled` has its
/// own.
#[derive(Clone)]
pub(super) struct Share {
    instances: u32,
    policy: Policy,
    /// Judges requests: the policy with its limit divided by the number of instances.
    pub(super) judging: Policy,
    /// Counts what the store has admitted, also beyond the share.
    pub(super) mirror: Policy,
    /// Counts what the fallback has admitted. Units that have left its window are no longer debts.
    pub(super) unsettled: Policy,
}

impl Share {
    fn new(policy: &Policy, instances: u32) -> Self {
        // The process has one count of a policy with shards, so a process judges and mirrors the whole policy.
        let whole = &policy.without_shards();
        let judging = whole.share(instances);
        let mirror = match policy.algorithm() {
            // A token bucket stores time, and the same time is worth more units at a higher rate. The mirror therefore
            // has the rate of the share.
            Algorithm::TokenBucket => &judging,
            Algorithm::FixedWindow | Algorithm::SlidingWindowCounter | Algorithm::SlidingWindowLog => whole,
        };
        let mirror = mirror.counting_everything();
        Self { instances, policy: policy.clone(), unsettled: mirror.renamed("unsettled"), mirror, judging }
    }
}

impl Share {
    /// The policy of the whole limit on the count of the share, with its holds. `None` if that count knows the share
    /// only. Made when it is needed, because checks that the store answers need none.
    pub(super) fn whole(&self) -> Option<Policy> {
        let is_whole = self.instances == 1 || self.policy.algorithm() != Algorithm::TokenBucket;
        is_whole.then(|| self.policy.without_shards().without_ban())
    }
}

/// The number of instances that share a limit.
#[derive(Debug)]
pub(crate) enum Instances {
    Given(u32),
    /// Counted by the store while it was healthy.
    Discovered(Arc<dyn Store>),
}

impl Instances {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Given(instances) => Some(*instances),
            Self::Discovered(store) => store.instances().filter(|&instances| instances > 0),
        }
    }
}

/// The shares of all policies.
pub(super) struct Shares {
    pub(super) instances: Instances,
    /// The shares by [`Policy::name_hash`]. Cached, because making a policy allocates.
    by_policy: RwLock<HashMap<u64, Share>>,
}

/// Largest number of cached shares. A full cache is cleared: its policies are probably made per request.
const MAX_SHARES: usize = 1_024;

impl Shares {
    pub(super) fn new(instances: Instances) -> Self {
        Self { instances, by_policy: RwLock::default() }
    }

    /// Whether the number of instances is known.
    pub(super) fn are_known(&self) -> bool {
        self.instances.number().is_some()
    }

    pub(super) fn of(&self, policy: &Policy) -> Share {
        // Any number will do while the number of instances is unknown: no check is judged by a share then.
        let instances = self.instances.number().unwrap_or(1);
        let shares = self.by_policy.read().unwrap_or_else(PoisonError::into_inner);
        let is_current = |share: &&Share| share.instances == instances && share.policy == *policy;
        if let Some(share) = shares.get(&policy.name_hash()).filter(is_current) {
            return share.clone();
        }
        drop(shares);
        let share = Share::new(policy, instances);
        let mut shares = self.by_policy.write().unwrap_or_else(PoisonError::into_inner);
        if shares.len() >= MAX_SHARES {
            shares.clear();
        }
        shares.insert(policy.name_hash(), share.clone());
        share
    }
}
