//! What happens when all places are taken by live counts.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

use super::shard::Shard;
use crate::{
    key::Key,
    observe::{Evicted, Observer, ObserverCell, Once, Warning},
    policy::Policy,
};

/// What a new key gets from a [`MemoryStore`](crate::MemoryStore) that is full of live counts. See
/// [`MemoryStore::when_full`](crate::MemoryStore::when_full).
///
/// Keys that have a place are judged as ever, whatever is chosen. A store that is large enough for the clients of one
/// window never comes to this.
///
/// | can a flood of made-up keys | `EvictLeastSpent` | `ShareOneBucket` | `Deny` |
/// | --- | --- | --- | --- |
/// | make a client's count begin anew? | only by spending as large a share of the limit with each key | no | no |
/// | spend a limit with each of its keys? | yes | no, one limit with all new keys together | no |
/// | keep new clients out? | no | yes, once it has spent the shared bucket | yes |
///
/// Choose `EvictLeastSpent` where keys are hard to make up (accounts, API keys that were verified) or where to let
/// through is better than to refuse. Choose `ShareOneBucket` for keys that clients can make up (addresses, names in a
/// login form), and `Deny` where not even a shared bucket may pass (attempts at a secret).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Denies checks of new keys while the store is full. No live count is ever dropped.
    ///
    /// Retry-After is the time until the first count that is known of becomes idle and leaves its place; for a check
    /// with several new counts, until there is a place for each. Some neighbours are looked at with every new key, so
    /// another place may become free earlier. At that time a new key gets the place, unless another one was faster or
    /// the count was charged again. It is never longer than the longest window in the store (of a sliding window
    /// counter two, of a bucket the time in which it fills). Cost 0 passes.
    Deny,
    /// Drops a live count, of a few that are looked at the one with the smallest share of its limit spent, and among
    /// equals the one that becomes idle soonest. Its client starts afresh. Eight counts at random places are looked at,
    /// and up to 64 while all of them have spent half of their limits or more.
    ///
    /// The default, because a store that is too small should not refuse new clients.
    #[default]
    EvictLeastSpent,
    /// Counts new keys in one bucket that they share, one for each policy, under the policy's own limit, while the
    /// store is full. No live count is ever dropped.
    ///
    /// Once there is room, new keys get places of their own again. Their counts begin with what the shared bucket has
    /// spent, as long as that is live: no key spends its limit there and once more here. A
    /// [reset](crate::Limiter::reset) does not reach the shared bucket. There are 1 024 shared buckets; policies beyond
    /// that deny.
    ///
    /// Under both `ShareOneBucket` and `Deny`, a key whose denials are not counted yet is not
    /// [banned](crate::Policy::ban_after) while the store is full, and denials by the shared bucket ban nobody.
    ShareOneBucket,
}

impl WhenFull {
    const DENY: u8 = Self::Deny as u8;
    const SHARE_ONE_BUCKET: u8 = Self::ShareOneBucket as u8;
}

/// What the table knows of being full.
pub(super) struct Fullness {
    /// As it was asked for.
    capacity: usize,
    /// What a new key gets, as the variant's number.
    when_full: AtomicU8,
    /// The buckets that new keys share: one for each policy. Locked after all other shards.
    pub(super) shared: Mutex<Shard>,
    /// Under which the shared buckets are kept.
    pub(super) shared_key: Key,
    /// When the last of them becomes idle, as far as they were charged.
    shared_until_us: AtomicU64,
    /// Live counts that were dropped.
    evicted: AtomicU64,
    warned: Once,
    observer: ObserverCell,
}

/// A live count that was dropped.
pub(super) struct Victim {
    pub(super) policy: Policy,
    pub(super) spent: u32,
}

/// Policies that are made per request must not fill the memory either.
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
        match self.when_full.load(Ordering::Relaxed) {
            WhenFull::DENY => WhenFull::Deny,
            WhenFull::SHARE_ONE_BUCKET => WhenFull::ShareOneBucket,
            _ => WhenFull::EvictLeastSpent,
        }
    }

    pub(super) fn set_when_full(&self, when_full: WhenFull) {
        self.when_full.store(when_full as u8, Ordering::Relaxed);
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    pub(super) fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.observer.set(observer.cloned());
        // Another observer has not heard what was said before.
        self.warned.rearm();
    }

    /// Whether a shared bucket may be live. A key that charged one sees it: the lock of its shard is in between.
    pub(super) fn is_shared(&self, now: u64) -> bool {
        self.shared_until_us.load(Ordering::Relaxed) > now
    }

    /// Notes that a shared bucket was charged, and becomes idle at `idle_at`.
    pub(super) fn shared_until(&self, idle_at: u64) {
        self.shared_until_us.fetch_max(idle_at, Ordering::Relaxed);
    }

    /// Reports live counts that were dropped. Never called under a lock, because it calls the observer.
    #[cold]
    pub(super) fn report(&self, victims: &[Victim]) {
        self.evicted.fetch_add(victims.len() as u64, Ordering::Relaxed);
        self.warn();
        if let Some(observer) = self.observer.get() {
            for Victim { policy, spent } in victims {
                observer.on_evicted(&Evicted::new(policy, *spent));
            }
        }
    }

    /// Warns that the store is full, once. Never called under a lock.
    #[cold]
    pub(super) fn warn(&self) {
        if let Some(observer) = self.observer.get()
            && self.warned.claim()
        {
            observer.on_warning(&Warning::StoreFull { capacity: self.capacity });
        }
    }
}
