//! The shards of the table, and the place of a count in them.

use std::{hash::BuildHasher, sync::Mutex};

use crate::{
    key::Key,
    policy::Policy,
    runtime::random::FastState,
    store::memory::{
        fullness::Fullness,
        shard::{Shard, lock},
        when_full::WhenFull,
    },
};

/// All counts of a store.
pub(super) struct Table {
    pub(super) shards: Box<[Mutex<Shard>]>,
    hasher: FastState,
    pub(super) fullness: Fullness,
}

/// Where a count is kept.
pub(super) struct Place {
    pub(super) shard: usize,
    pub(super) hash: u64,
}

/// Largest number of shards: more than the number of cores that contend for them.
const SHARDS: usize = 64;

impl Table {
    pub(super) fn new(keys: usize) -> Self {
        // Keys spread unevenly, so shards are large and have an eighth more room than their share.
        let shards = (keys / 1_024).clamp(1, SHARDS);
        let share = keys.div_ceil(shards);
        let capacity = if shards == 1 { share } else { share + share / 8 };
        let shards = (0..shards).map(|_| Mutex::new(Shard::new(capacity))).collect();
        Self { shards, hasher: FastState::default(), fullness: Fullness::new(keys) }
    }

    /// The place of a count. All policies of a key share a shard, so that a check of one key takes one lock.
    pub(super) fn place(&self, key: &Key, policy: &Policy) -> Place {
        let key_hash = self.hasher.hash_one(key);
        // 32 bits scaled to the number of shards, which needs no division. They are the middle bits of the hash,
        // because the hash table of a shard uses the first and the last ones.
        let fraction = (key_hash >> 16) & u64::from(u32::MAX);
        let shard = usize::try_from((fraction * self.shards.len() as u64) >> 32).unwrap_or(0);
        // The hash of the key has a random seed, so no client can choose keys that collide.
        Place { shard, hash: key_hash ^ policy.name_hash().rotate_left(32) }
    }

    /// Forgets all counts, at one instant: no check is under way while all shards are locked.
    pub(super) fn clear(&self) {
        // In the order in which checks lock them.
        let mut shards: Vec<_> = self.shards.iter().chain([&self.fullness.shared]).map(lock).collect();
        let counts: Vec<_> = shards.iter_mut().map(|shard| shard.clear()).collect();
        self.fullness.none_shared();
        drop(shards);
        // Dropping many counts takes time, so no check waits for it.
        drop(counts);
    }

    /// Whether a new key takes the place of a live count while the table is full.
    pub(super) fn evicts(&self) -> bool {
        self.fullness.when_full() == WhenFull::EvictLeastSpent
    }
}
