//! Counts of which the store may lack units that this instance has admitted: their checks or debits were sent without
//! a reply, so they may not have arrived.
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

/// The counts of one limiter.
#[derive(Default)]
pub(super) struct Unsure {
    counts: Mutex<Counts>,
    /// The number of counts, so that a process without any takes no lock.
    number: AtomicUsize,
    hasher: FastState,
}

#[derive(Default)]
struct Counts {
    /// When the last such units of a count have left their window, by the hash of its key and policy. Two counts of
    /// one hash are taken for one: an instance that has spent a whole limit by itself is denied rightly in any case.
    until: HashMap<u64, Instant, FastState>,
    /// When the counts that have ended are looked for next.
    next_sweep: Option<Instant>,
}

/// The most counts, less than 1 MB. One more takes the place of the one that ends first.
const MOST: usize = 10_000;
/// Time between two sweeps. A sweep of all counts takes less than a millisecond.
const PAUSE: Duration = Duration::from_secs(1);

impl Counts {
    /// Removes the counts that have ended, at most once a second: their keys may never come again.
    fn sweep(&mut self, now: Instant) {
        if self.next_sweep.is_none_or(|next| next <= now) {
            self.until.retain(|_, until| now < *until);
            self.next_sweep = Some(now + PAUSE);
        }
    }
}

impl Unsure {
    /// Notes that the store may lack units of a count that were admitted just now.
    pub(super) fn note(&self, key: &Key, policy: &Policy) {
        let ttl = policy.holds().map_or_else(Default::default, |holds| holds.ttl());
        let now = Instant::now();
        // A time that cannot be represented never comes.
        let Some(until) = now.checked_add(ttl.saturating_add(longest_memory(policy))) else { return };
        let mut counts = self.lock();
        counts.sweep(now);
        let hash = self.hash(key, policy);
        if counts.until.len() >= MOST && !counts.until.contains_key(&hash) {
            let first = counts.until.iter().min_by_key(|(_, until)| **until).map(|(hash, _)| *hash);
            first.and_then(|first| counts.until.remove(&first));
        }
        let noted = counts.until.entry(hash).or_insert(until);
        *noted = until.max(*noted);
        self.number.store(counts.until.len(), Ordering::Release);
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
        let now = Instant::now();
        let mut counts = self.lock();
        counts.sweep(now);
        self.number.store(counts.until.len(), Ordering::Release);
        counts.until.get(&hash).is_some_and(|until| now < *until)
    }

    /// Forgets a count that was reset.
    pub(super) fn forget(&self, key: &Key, policy: &Policy) {
        let mut counts = self.lock();
        counts.until.remove(&self.hash(key, policy));
        self.number.store(counts.until.len(), Ordering::Release);
    }

    fn hash(&self, key: &Key, policy: &Policy) -> u64 {
        self.hasher.hash_one(key) ^ policy.name_hash().rotate_left(32)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Each change is one step, so a poisoned lock is usable.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
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
    Duration::from_micros(policy.window_us().saturating_mul(windows))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn policy() -> Policy {
        Policy::new("api", 100, WINDOW).expect("the policy is valid")
    }

    #[tokio::test(start_paused = true)]
    async fn counts_whose_keys_never_come_again_are_forgotten_after_their_window() {
        let (unsure, policy) = (Unsure::default(), policy());
        for number in 0..1_000 {
            unsure.note(&Key::new(number.to_string()), &policy);
        }
        tokio::time::advance(WINDOW - PAUSE).await;
        unsure.note(&Key::new("late"), &policy);
        assert!(unsure.has(&Key::new("0"), &policy));
        tokio::time::advance(PAUSE).await;
        assert!(!unsure.has(&Key::new("other"), &policy) && unsure.any());
        assert_eq!(unsure.lock().until.len(), 1);
        tokio::time::advance(WINDOW).await;
        assert!(!unsure.has(&Key::new("other"), &policy) && !unsure.any(), "checks take no lock any more");
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_full_table_a_count_takes_the_place_of_the_one_that_ends_first() {
        let (unsure, policy) = (Unsure::default(), policy());
        unsure.note(&Key::new("first"), &policy);
        tokio::time::advance(Duration::from_millis(1)).await;
        for number in 0..MOST {
            unsure.note(&Key::new(number.to_string()), &policy);
        }
        assert!(!unsure.has(&Key::new("first"), &policy) && unsure.has(&Key::new("0"), &policy));
        assert_eq!(unsure.lock().until.len(), MOST);
    }
}
