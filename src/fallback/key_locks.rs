//! Locks by key: one thread at a time looks for room in a count and takes it.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::{key::Key, observe::with_reports_after, runtime::random::FastState};

/// A striped lock: keys whose hashes fall on the same stripe share a lock.
#[derive(Default)]
pub(super) struct KeyLocks {
    // Few threads meet on the same one of 32 stripes.
    stripes: [Stripe; 32],
    hasher: FastState,
}

/// Has a cache line of its own, so that threads with other stripes do not slow it down.
#[derive(Default)]
#[repr(align(64))]
struct Stripe(Mutex<()>);

impl KeyLocks {
    /// Runs `work` under the locks of the keys. Observers hear of it afterwards, because they may use the limiter.
    pub(super) fn locked<'a, T>(&self, keys: impl Iterator<Item = &'a Key>, work: impl FnOnce() -> T) -> T {
        let stripe_of = |key| self.hasher.hash_one(key) as usize % self.stripes.len();
        let mut numbers: SmallVec<[usize; 2]> = keys.map(stripe_of).collect();
        // In one order, so that no two threads wait for each other.
        numbers.sort_unstable();
        numbers.dedup();
        with_reports_after(|| {
            // A stripe guards no data, so one whose work has panicked is usable.
            let lock = |number: &usize| self.stripes[*number].0.lock().unwrap_or_else(PoisonError::into_inner);
            let _locks: SmallVec<[MutexGuard<'_, ()>; 2]> = numbers.iter().map(lock).collect();
            work()
        })
    }
}
