//! Counts of which this process holds blocks, for checks of these counts under policies without holds.
//!
//! A policy without holds does not look for what is held. If the policy of a key changes while the process runs, from
//! one with a lease to one without, the units of open blocks must not be given away a second time. So such checks are
//! sent under their policy with holds, as long as the store may hold a block of this process, or owe the charge of one
//! that has expired.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    check::{Charge, Check},
    policy::{Holds, Policy},
    runtime::random::FastState,
};

/// The counts of which the store may hold blocks of this process, by the hash of their keys and policies.
#[derive(Debug, Default)]
pub(super) struct HeldCounts {
    counts: Mutex<HashMap<u64, HeldCount, FastState>>,
    /// The number of counts, so that a process without blocks takes no lock.
    number: AtomicUsize,
}

/// Two counts of one hash are taken for one. Their checks ask for holds a little longer than they have to.
#[derive(Debug)]
struct HeldCount {
    blocks: usize,
    holds: Holds,
    /// When the last block has certainly expired, and what was charged for it has left its window.
    until: Instant,
}

/// The most counts, about 1 MB. One more takes the place of the one that ends first.
const MOST: usize = 10_000;

impl HeldCounts {
    /// Notes that a block is requested.
    pub(super) fn request(&self, hash: u64, policy: &Policy, now: Instant) {
        let Some(holds) = policy.holds().copied() else { return };
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
    pub(super) fn end(&self, hash: u64) {
        let mut counts = self.lock();
        if let Some(count) = counts.get_mut(&hash) {
            count.blocks = count.blocks.saturating_sub(1);
            if count.blocks == 0 {
                counts.remove(&hash);
            }
        }
        self.number.store(counts.len(), Ordering::Release);
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.number.load(Ordering::Acquire) > 0
    }

    /// The policy with holds by which a charge has to be judged, if its own has none and blocks of its count are held.
    pub(super) fn policy_with_holds(&self, hash: u64, policy: &Policy, now: Instant) -> Option<Policy> {
        let holds = self.lock().get(&hash).filter(|count| now < count.until)?.holds;
        // A policy with a ban or counted denials cannot have holds.
        policy.clone().with_holds(holds).validated().ok()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HeldCount, FastState>> {
        // Each change is one step, so a poisoned lock is usable.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The check with the policies that `policy_of` returns for its charges. `None` if it returns none.
pub(super) fn with_policies(check: &Check, policy_of: impl Fn(&Charge) -> Option<Policy>) -> Option<Check> {
    let policies: Vec<Option<Policy>> = check.charges().iter().map(policy_of).collect();
    policies.iter().any(Option::is_some).then(|| {
        let charges = check.charges().iter().cloned().zip(policies);
        Check::of_distinct(charges.map(|(charge, policy)| match policy {
            Some(policy) => Charge { policy, ..charge },
            None => charge,
        }))
    })
}

/// How long a block counts at most from its request: until it expires, and then for a window, in which a bucket fills.
fn lasting(policy: &Policy, holds: &Holds) -> Duration {
    let windows = policy.capacity().div_ceil(policy.limit()).max(2);
    holds.ttl().saturating_add(policy.window().saturating_mul(windows))
}
