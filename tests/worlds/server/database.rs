//! The keys of a server, and when they expire.

use std::collections::BTreeMap;

use super::reply::{Bytes, Reply};
use super::sorted_set::SortedSet;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(Bytes),
    Set(SortedSet),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(super) value: Value,
    /// When the key expires, in milliseconds of the server's clock.
    pub(super) expires_ms: Option<i64>,
}

/// Keys in order, so that the same world visits them in the same order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Database {
    keys: BTreeMap<Bytes, Entry>,
    /// The server's clock in microseconds. It stands still while a script runs.
    pub(crate) now_us: i64,
}

impl Database {
    pub(super) fn now_ms(&self) -> i64 {
        self.now_us / 1_000
    }

    /// The entry of a key that has not expired.
    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now_ms = self.now_ms();
        if self.keys.get(key)?.expires_ms.is_some_and(|at| at <= now_ms) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    pub(super) fn text(&mut self, key: &[u8]) -> Result<Option<&mut Bytes>, Reply> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Set(_)) => Err(Reply::wrong_type()),
        }
    }

    pub(super) fn set(&mut self, key: &[u8]) -> Result<Option<&mut SortedSet>, Reply> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::Set(set)) => Ok(Some(set)),
            Some(Value::Text(_)) => Err(Reply::wrong_type()),
        }
    }

    /// Adds a key without an expiry.
    pub(super) fn add(&mut self, key: &[u8], value: Value) {
        self.keys.insert(key.to_vec(), Entry { value, expires_ms: None });
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some() && self.keys.remove(key).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    /// Takes a key away from this server, for another one that gets its slot.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Entry> {
        self.entry(key)?;
        self.keys.remove(key)
    }

    pub(crate) fn put(&mut self, key: Bytes, entry: Entry) {
        self.keys.insert(key, entry);
    }

    pub(crate) fn has(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// Whether a key will expire.
    pub(crate) fn expires(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some_and(|entry| entry.expires_ms.is_some())
    }

    pub(crate) fn names(&self) -> Vec<Bytes> {
        self.keys.keys().cloned().collect()
    }

    /// The names of the keys that are left at a time of the server's clock.
    pub(crate) fn left_at(&mut self, now_us: i64) -> Vec<Bytes> {
        self.now_us = now_us;
        self.names().into_iter().filter(|key| self.has(key)).collect()
    }
}
