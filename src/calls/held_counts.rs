//! Counts of which this process holds blocks, for checks of these counts under policies without holds.
//!
//! A policy without holds does not look for what is held. If the policy of a key changes while the process runs, from
//! one with a lease to one without, the units of open blocks must not be given away a second time. So such checks are
//! sent under their policy with holds, as long as the store may hold a block of this process, or owe the charge of one
//! that has expired.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    check::{Charge, Check},
    key::Key,
    policy::{HoldSettings, Policy},
    runtime::random::FastState,
};

/// The counts of which the store may hold blocks of this process, by the hash of their keys and policies.
#[derive(Debug, Default)]
pub(crate) struct HeldCounts {
    counts: Mutex<HashMap<u64, HeldCount, FastState>>,
    hasher: FastState,
    /// The number of counts, so that a process without blocks takes no lock.
    number: AtomicUsize,
}

/// Two counts of one hash are taken for one. Their checks ask for holds a little longer than they have to.
#[derive(Debug)]
struct HeldCount {
    blocks: usize,
    holds: HoldSettings,
    /// When the last block has certainly expired, and what was charged for it has left its window.
    until: Instant,
}

/// The most counts, about 1 MB. One more takes the place of the one that ends first.
const MOST: usize = 10_000;

impl HeldCounts {
    /// Notes that a block is requested.
    pub(crate) fn request(&self, key: &Key, policy: &Policy, now: Instant) {
        let Some(holds) = policy.holds().copied() else { return };
        let hash = self.hash(key, policy);
        let mut counts = self.lock();
        if counts.len() >= MOST {
            counts.retain(|_, count| now < count.until);
            let first = counts.iter().min_by_key(|(_, count)| count.until).map(|(hash, _)| *hash);
            if let Some(first) = first.filter(|_| counts.len() >= MOST) {
                counts.remove(&first);
            }
        }
        let count = counts.entry(hash).or_insert(HeldCount { blocks: 0, holds, until: now });
        count.blocks += 1;
        count.until = now.checked_add(lasting(policy, &holds)).unwrap_or(now);
        self.number.store(counts.len(), Ordering::Release);
    }

    /// Notes that the store does not hold a block, or not any more. A block of unknown fate has no such end.
    pub(crate) fn end(&self, key: &Key, policy: &Policy) {
        let hash = self.hash(key, policy);
        let mut counts = self.lock();
        if let Some(count) = counts.get_mut(&hash) {
            count.blocks = count.blocks.saturating_sub(1);
            if count.blocks == 0 {
                counts.remove(&hash);
            }
        }
        self.number.store(counts.len(), Ordering::Release);
    }

    /// The check that sees the blocks of this process, if policies of `check` have no holds and would overlook them.
    #[inline]
    pub(crate) fn check_beside(&self, check: &Check) -> Option<Check> {
        if self.number.load(Ordering::Acquire) > 0 { self.with_holds(check) } else { None }
    }

    #[cold]
    fn with_holds(&self, check: &Check) -> Option<Check> {
        let now = Instant::now();
        // Nearly all checks end here: their counts have no blocks.
        check.charges().iter().any(|charge| self.policy_with_holds(charge, now).is_some()).then(|| {
            Check::of_distinct(check.charges().iter().map(|charge| match self.policy_with_holds(charge, now) {
                Some(policy) => Charge { policy, ..charge.clone() },
                None => charge.clone(),
            }))
        })
    }

    /// The policy with holds by which a charge has to be judged, if its own has none and blocks of its count are held.
    fn policy_with_holds(&self, Charge { key, policy, .. }: &Charge, now: Instant) -> Option<Policy> {
        if policy.holds().is_some() {
            return None;
        }
        let holds = self.lock().get(&self.hash(key, policy)).filter(|count| now < count.until)?.holds;
        // A policy with a ban or counted denials cannot have holds.
        policy.clone().with_holds(holds).validated().ok()
    }

    fn hash(&self, key: &Key, policy: &Policy) -> u64 {
        // The hash of the key has a random seed, so no client can choose keys that collide.
        self.hasher.hash_one(key) ^ policy.name_hash().rotate_left(32)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HeldCount, FastState>> {
        // Each change is one step, so a poisoned lock is usable.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a block counts at most from its request: until it expires, and then for a window, in which a bucket fills.
fn lasting(policy: &Policy, holds: &HoldSettings) -> Duration {
    let windows = policy.capacity().div_ceil(policy.limit()).max(2);
    holds.ttl().saturating_add(Duration::from_micros(policy.window_us().saturating_mul(windows)))
}
