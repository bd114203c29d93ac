//! The shards of the table, the place of a count in them, and what happens when the table is full.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use crate::observe::{Event, Eviction, Observer, ObserverCell, Once, Other, Warning, report_later};
use crate::store::memory::shard::{Shard, Victim, lock};
use crate::{key::Key, policy::Policy, runtime::random::FastState};

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

/// The setting, the shared buckets and the reports of a full table.
pub(super) struct Fullness {
    /// The capacity in keys, as the user has set it.
    capacity: usize,
    /// What a new key gets, as the number of the variant of [`WhenFull`].
    when_full: AtomicU8,
    /// The buckets that new keys share, one for each policy. Locked after all other shards.
    pub(super) shared: Mutex<Shard>,
    /// The key of the shared buckets.
    pub(super) shared_key: Key,
    /// When the last of the shared buckets becomes idle.
    shared_until_us: AtomicU64,
    /// Number of live counts that were dropped.
    evicted: AtomicU64,
    warned: Once,
    observer: ObserverCell,
}

/// Largest number of shared buckets. A service may create policies per request, so their number needs a bound.
const SHARED_BUCKETS: usize = 1_024;

impl Fullness {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            when_full: AtomicU8::new(WhenFull::default() as u8),
            shared: Mutex::new(Shard::new(SHARED_BUCKETS)),
            shared_key: Key::reserved(b"*full"),
            shared_until_us: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            warned: Once::default(),
            observer: ObserverCell::default(),
        }
    }

    pub(super) fn when_full(&self) -> WhenFull {
        WhenFull::from_u8(self.when_full.load(Ordering::Relaxed))
    }

    pub(super) fn set_when_full(&self, when_full: WhenFull) {
        self.when_full.store(when_full as u8, Ordering::Relaxed);
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    pub(super) fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.observer.set(observer.cloned());
        // The new observer has not received the warning yet.
        self.warned.rearm();
    }

    /// Whether a shared bucket may be live. Every earlier charge of the same key is visible here, because the key's
    /// shard is locked.
    pub(super) fn is_shared(&self, now: u64) -> bool {
        self.shared_until_us.load(Ordering::Relaxed) > now
    }

    /// Notes that a shared bucket was charged and becomes idle at `idle_at`.
    pub(super) fn shared_until(&self, idle_at: u64) {
        self.shared_until_us.fetch_max(idle_at, Ordering::Relaxed);
    }

    /// Notes that no shared bucket is left. The shard of the shared buckets is locked.
    fn none_shared(&self) {
        self.shared_until_us.store(0, Ordering::Relaxed);
    }

    /// Reports live counts that were dropped. Must be called without a lock of the store: it may call the observer.
    #[cold]
    pub(super) fn report(&self, victims: SmallVec<[Victim; 1]>) {
        self.evicted.fetch_add(victims.len() as u64, Ordering::Relaxed);
        self.warn();
        if let Some(observer) = self.observer.get() {
            report_later(move || {
                for Victim { policy, spent } in &victims {
                    observer.on_event(&Event::other(Other::Eviction(Eviction { policy, spent: *spent })));
                }
            });
        }
    }

    /// Warns once that the store is full. Must be called without a lock of the store.
    #[cold]
    pub(super) fn warn(&self) {
        if let Some(observer) = self.observer.get()
            && self.warned.claim()
        {
            let capacity = self.capacity;
            report_later(move || observer.on_event(&Event::of_warning(Warning::store_full(capacity))));
        }
    }
}

/// What a new key gets from a [`MemoryStore`](crate::MemoryStore) that is full of live counts. See
/// [`MemoryStore::when_full`](crate::MemoryStore::when_full).
///
/// Every choice judges keys that already have a count as usual. A store that is large enough for the clients of one
/// window never gets full.
///
/// | can a flood of made-up keys | `EvictLeastSpent` | `ShareOneKey` | `Deny` |
/// | --- | --- | --- | --- |
/// | reset a client's count to zero? | only by spending as large a share of the limit with each key | no | no |
/// | spend a limit with each of its keys? | yes | no, one limit with all new keys together | no |
/// | keep new clients out? | no | yes, once it has spent the shared bucket | yes |
///
/// Choose `EvictLeastSpent` where keys are hard to make up (accounts, verified API keys) or where a refused client is
/// worse than an unlimited one. Choose `ShareOneKey` for keys that clients can make up (addresses, names in a login
/// form), and `Deny` where new keys must not even share one limit (attempts at a secret).
///
/// # Examples
///
/// ```
/// use tollgate::{MemoryStore, store::WhenFull};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let logins =
///     MemoryStore::with_capacity(100_000)?.when_full(WhenFull::ShareOneKey);
/// # let _ = logins;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Denies checks of new keys while the store is full. No live count is dropped.
    ///
    /// Retry-After is the time until the first of the inspected counts becomes idle and frees its place; for a check
    /// with several new counts, until there is a place for each. For every new key the store inspects a few more
    /// counts, so a place may become free earlier. A new key gets the free place unless another key was faster or the
    /// count was charged again. Retry-After is at most the longest window in the store (two windows of a sliding window
    /// counter, the time to refill a bucket), unless all inspected counts stay longer: beside open
    /// [holds](crate::Limiter::hold), during a ban, while a ban that grows is remembered, and in a bucket that is
    /// charged beyond its burst. A check with more new counts than the store has places never passes, and has no
    /// Retry-After. A cost of 0 passes.
    Deny,
    /// Drops a live count, whose client then starts with a fresh budget. The store inspects eight counts at random
    /// places, or up to 64 while all of them have spent half of their limits or more, or have open holds. It drops the
    /// count that has spent the smallest share of its limit, and among equals the count that becomes idle soonest.
    /// Counts with open holds, which are those of requests that run, are dropped only if all inspected counts have
    /// some.
    ///
    /// The default, because a store that is too small should not refuse new clients.
    #[default]
    EvictLeastSpent,
    /// Counts new keys in a bucket that they share, one for each policy, under the policy's own limit, while the store
    /// is full. No live count is dropped.
    ///
    /// Once there is room, new keys get their own counts again. Such a count starts with what the shared bucket has
    /// spent, as long as that is live, so that no key spends its limit twice. A [reset](crate::Limiter::reset) does not
    /// affect the shared bucket. There are 1 024 shared buckets; under further policies, checks of new keys are denied.
    ///
    /// Under both `ShareOneKey` and `Deny`, a key whose denials are not counted yet is not
    /// [banned](crate::Policy::ban_after) while the store is full, and denials by the shared bucket ban no key.
    ShareOneKey,
}

impl WhenFull {
    const DENY: u8 = Self::Deny as u8;
    const SHARE_ONE_KEY: u8 = Self::ShareOneKey as u8;

    /// The inverse of `self as u8`.
    fn from_u8(number: u8) -> Self {
        match number {
            Self::DENY => Self::Deny,
            Self::SHARE_ONE_KEY => Self::ShareOneKey,
            _ => Self::EvictLeastSpent,
        }
    }
}
