//! What happens when the table is full: the setting, the shared buckets and the reports.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

use smallvec::SmallVec;

use crate::{
    key::Key,
    observe::{Event, Eviction, Observer, ObserverCell, Once, Other, Warning, report_later},
    store::memory::{
        shard::{Shard, Victim},
        when_full::WhenFull,
    },
};

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
    pub(super) fn none_shared(&self) {
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
