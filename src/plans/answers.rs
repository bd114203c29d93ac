//! The latest answer about each key, in two caches: what clients make up cannot push out what is known.

use foldhash::quality::RandomState;
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};

use super::entry::Entry;
use crate::key::Key;

type Entries = Cache<Key, Entry, UnitWeighter, RandomState>;

/// The answers so far. Changes need the lock of [`InFlight`](super::in_flight::InFlight).
pub(super) struct Answers {
    /// Keys for which the source has returned a plan, or for which the service has vouched.
    known: Entries,
    /// All other keys: those without a plan of their own, and those whose look-up has failed.
    others: Entries,
}

/// The part of the capacity that other keys have: one in this number. They need less, because the default plan applies
/// to them anyway.
const OTHERS: usize = 4;

impl Answers {
    pub(super) fn with_capacity(keys: usize) -> Self {
        let others = (keys / OTHERS).max(1);
        Self { known: entries((keys - others).max(1)), others: entries(others) }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len() + self.others.len()
    }

    /// The answer about a key, which counts as a use.
    #[inline]
    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        self.known.get(key).or_else(|| self.others.get(key))
    }

    /// The answer about a key, which does not count as a use.
    pub(super) fn peek(&self, key: &Key) -> Option<Entry> {
        self.known.peek(key).or_else(|| self.others.peek(key))
    }

    pub(super) fn is_known(&self, key: &Key) -> bool {
        self.known.contains_key(key)
    }

    /// Stores the answer about a key, which is known from now on.
    pub(super) fn insert_known(&self, key: Key, entry: Entry) {
        self.others.remove(&key);
        self.known.insert(key, entry);
    }

    /// Stores an answer that does not make a key known. A known key stays known.
    pub(super) fn insert(&self, key: Key, entry: Entry) {
        if self.is_known(&key) { self.known.insert(key, entry) } else { self.others.insert(key, entry) }
    }
}

fn entries(keys: usize) -> Entries {
    let weight = u64::try_from(keys).unwrap_or(u64::MAX);
    Cache::with(keys, weight, UnitWeighter, RandomState::default(), DefaultLifecycle::default())
}
