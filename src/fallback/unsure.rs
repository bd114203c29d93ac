//! Counts of which the store may lack units that this instance has admitted: their checks or debits were sent, and
//! nobody knows whether they have arrived.
//!
//! They are not sent again. This instance has counted them, so until they have left its window, its checks need room
//! in its own count of the whole limit as well as in the store.

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
    key::Key,
    policy::{Algorithm, Policy},
    runtime::random::FastState,
};

/// When the last such units of a count have left their window, by the hash of its key and policy. Two counts of one
/// hash are taken for one: an instance that has spent a whole limit by itself is denied rightly in any case.
#[derive(Default)]
pub(super) struct Unsure {
    until: Mutex<HashMap<u64, Instant, FastState>>,
    /// The number of counts, so that a process without any takes no lock.
    number: AtomicUsize,
    hasher: FastState,
}

/// The most counts, less than 1 MB. One more takes the place of the one that ends first.
const MOST: usize = 10_000;

impl Unsure {
    /// Notes that the store may lack units of a count that were admitted just now.
    pub(super) fn note(&self, key: &Key, policy: &Policy) {
        let ttl = policy.holds().map_or_else(Default::default, |holds| holds.ttl());
        let now = Instant::now();
        // A time that cannot be represented never comes.
        let Some(until) = now.checked_add(ttl.saturating_add(longest_memory(policy))) else { return };
        let mut counts = self.lock();
        if counts.len() >= MOST {
            counts.retain(|_, until| now < *until);
            let first = counts.iter().min_by_key(|(_, until)| **until).map(|(hash, _)| *hash);
            if let Some(first) = first.filter(|_| counts.len() >= MOST) {
                counts.remove(&first);
            }
        }
        let noted = counts.entry(self.hash(key, policy)).or_insert(until);
        *noted = until.max(*noted);
        self.number.store(counts.len(), Ordering::Release);
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.number.load(Ordering::Acquire) > 0
    }

    /// Whether the store may lack units of this count.
    pub(super) fn has(&self, key: &Key, policy: &Policy) -> bool {
        if !self.any() {
            return false;
        }
        let hash = self.hash(key, policy);
        let mut counts = self.lock();
        let Some(until) = counts.get(&hash) else { return false };
        let is_unsure = Instant::now() < *until;
        if !is_unsure {
            counts.remove(&hash);
            self.number.store(counts.len(), Ordering::Release);
        }
        is_unsure
    }

    /// Forgets a count that was reset.
    pub(super) fn forget(&self, key: &Key, policy: &Policy) {
        let mut counts = self.lock();
        counts.remove(&self.hash(key, policy));
        self.number.store(counts.len(), Ordering::Release);
    }

    fn hash(&self, key: &Key, policy: &Policy) -> u64 {
        self.hasher.hash_one(key) ^ policy.name_hash().rotate_left(32)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Instant, FastState>> {
        // Each change is one step, so a poisoned lock is usable.
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest time from a charge until its count has forgotten it.
fn longest_memory(policy: &Policy) -> Duration {
    let windows = match policy.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingWindowLog => 1,
        // The window before counts in part.
        Algorithm::SlidingWindowCounter => 2,
        // As long as an empty bucket fills.
        Algorithm::TokenBucket => policy.capacity().div_ceil(policy.limit()),
    };
    policy.window().saturating_mul(windows)
}
