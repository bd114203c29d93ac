//! Shares: policies divided by the number of instances. Units of checks that were sent to a store whose counts may be
//! behind take room of the share until the store has answered, so that checks at the same time do not fill the same
//! room.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::{collections::HashMap, hash::BuildHasher, iter};

use smallvec::SmallVec;

use crate::policy::{Algorithm, Policy};
use crate::{check::Charge, runtime::random::FastState, store::Store};

/// The policies that one instance counts with, for one policy. `judging` and `mirror` share a count; the others have
/// their own.
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
    /// Counts the same in the whole bucket, if `unsettled` is a smaller one: units that are recorded, or settled above
    /// their estimate, may be more than the share holds. They leave the whole bucket at its own rate.
    pub(super) unsettled_whole: Option<Policy>,
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
        let is_smaller = mirror.capacity() < whole.capacity();
        let unsettled_whole = is_smaller.then(|| whole.counting_everything().renamed("unsettled whole"));
        let (policy, unsettled) = (policy.clone(), mirror.renamed("unsettled"));
        Self { instances, policy, judging, mirror, unsettled, unsettled_whole }
    }
}

impl Share {
    /// The policies that count what the fallback has admitted.
    pub(super) fn all_unsettled(&self) -> impl Iterator<Item = &Policy> {
        iter::once(&self.unsettled).chain(&self.unsettled_whole)
    }

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

/// The reserved units of all counts, by the hashes of their keys and policies. Two counts of one hash share their room,
/// so one of them may be denied too early.
#[derive(Default)]
pub(super) struct Reserved {
    units: Mutex<HashMap<u64, u64, FastState>>,
    /// The number of counts, so that a process without reservations takes no lock.
    number: AtomicUsize,
    hasher: FastState,
}

/// Room of the share, until it is dropped.
pub(crate) struct Reservation {
    reserved: Arc<Reserved>,
    charges: SmallVec<[(u64, u64); 1]>,
}

impl Reserved {
    /// Reserves the costs of all charges, if each fits beside what is reserved. `fits` is asked with a charge and the
    /// units that its count needs in all.
    pub(super) fn reserve<'a>(
        self: &Arc<Self>,
        charges: impl Iterator<Item = &'a Charge> + Clone,
        fits: impl Fn(&Charge, u64) -> bool,
    ) -> Option<Reservation> {
        let mut units = self.lock();
        let needs = |charge: &Charge| units.get(&self.hash(charge)).copied().unwrap_or(0).saturating_add(charge.cost);
        if !charges.clone().all(|charge| fits(charge, needs(charge))) {
            return None;
        }
        let charges: SmallVec<[(u64, u64); 1]> =
            charges.filter(|charge| charge.cost > 0).map(|charge| (self.hash(charge), charge.cost)).collect();
        for (hash, cost) in &charges {
            let sum = units.entry(*hash).or_default();
            *sum = sum.saturating_add(*cost);
        }
        self.number.store(units.len(), Ordering::Release);
        Some(Reservation { reserved: Arc::clone(self), charges })
    }

    /// The units that are reserved of the count of a charge.
    pub(super) fn of(&self, charge: &Charge) -> u64 {
        if self.number.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.lock().get(&self.hash(charge)).copied().unwrap_or(0)
    }

    fn hash(&self, charge: &Charge) -> u64 {
        self.hasher.hash_one(&charge.key) ^ charge.policy.name_hash().rotate_left(32)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u64, FastState>> {
        // A panic under the lock leaves some units reserved, which only makes the share smaller.
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut units = self.reserved.lock();
        for (hash, cost) in &self.charges {
            if let Some(sum) = units.get_mut(hash) {
                *sum = sum.saturating_sub(*cost);
                if *sum == 0 {
                    units.remove(hash);
                }
            }
        }
        self.reserved.number.store(units.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn room_is_taken_count_by_count_until_each_reservation_is_dropped() {
        let charge = |key: &str| Charge::new(Key::new(key), Policy::per_minute("p", 10).unwrap(), 4);
        let (reserved, one, other) = (Arc::<Reserved>::default(), charge("one"), charge("other"));
        let fits = |_: &Charge, units: u64| units <= 10;
        let first = reserved.reserve([&one].into_iter(), fits).unwrap();
        let second = reserved.reserve([&one, &other].into_iter(), fits).unwrap();
        assert_eq!((reserved.of(&one), reserved.of(&other)), (8, 4));
        drop(second);
        assert_eq!((reserved.of(&one), reserved.of(&other)), (4, 0));
        drop(first);
        assert!(reserved.lock().is_empty(), "nothing stays in memory");
    }
}
