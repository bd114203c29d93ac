//! The counts of a shard: a dense list, and an index that finds a count by its hash.
//!
//! The list is dense, so that any count can be inspected by its position. The index has four bytes for each count, so
//! that it stays in the processor's caches.

use hashbrown::HashTable;

use crate::{key::Key, policy::Policy, store::memory::hold_counts::Count};

/// One count, and what identifies it: the key, and the policy by its name, algorithm, window and resolution.
///
/// 128 bytes on 64-bit platforms: exactly two cache lines, which are loaded at the same time.
#[repr(align(64))]
pub(super) struct Entry {
    hash: u64,
    key: Key,
    pub(super) policy: Policy,
    pub(super) state: Count,
}

impl Entry {
    pub(super) fn new(hash: u64, key: Key, policy: Policy, state: Count) -> Self {
        Self { hash, key, policy, state }
    }

    #[inline]
    fn matches(&self, key: &Key, policy: &Policy) -> bool {
        self.policy.counts_with(policy) && self.key == *key
    }

    /// When the count becomes idle, in microseconds.
    pub(super) fn idle_at(&self) -> u64 {
        self.state.idle_at(&self.policy)
    }

    /// When the count may be dropped although there is room, in microseconds.
    pub(super) fn stale_at(&self) -> u64 {
        self.state.stale_at(&self.policy)
    }

    /// The units that are spent at `now`.
    pub(super) fn spent(&self, now: u64) -> u64 {
        self.policy.capacity() - self.state.available(&self.policy, now)
    }
}

/// The counts of a shard, by position and by hash.
#[derive(Default)]
pub(super) struct Entries {
    list: Vec<Entry>,
    /// The positions in `list`.
    index: HashTable<u32>,
}

/// No position, while two entries change places. No list is that long, see [`Entries::MAX_LEN`].
const NOWHERE: u32 = u32::MAX;

impl Entries {
    /// The most entries of a list, so that a position takes four bytes. They would take 256 GiB.
    pub(super) const MAX_LEN: usize = 1 << 31;

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get(&self, position: usize) -> Option<&Entry> {
        self.list.get(position)
    }

    pub(super) fn state(&self, position: usize) -> &Count {
        &self.list[position].state
    }

    pub(super) fn state_mut(&mut self, position: usize) -> &mut Count {
        &mut self.list[position].state
    }

    /// The position of a count.
    #[inline]
    pub(super) fn find(&self, key: &Key, policy: &Policy, hash: u64) -> Option<usize> {
        let found = self.index.find(hash, |&position| self.list[wide(position)].matches(key, policy));
        found.map(|&position| wide(position))
    }

    /// Adds an entry at the end. The list must not contain the count.
    pub(super) fn push(&mut self, entry: Entry) {
        let Self { list, index } = self;
        index.insert_unique(entry.hash, narrow(list.len()), |&position| list[wide(position)].hash);
        if list.len() == list.capacity() {
            // Not twice as many, which the index might never have.
            list.reserve_exact(index.capacity() - list.len());
        }
        list.push(entry);
    }

    /// Puts another count in the place of an entry. The list must not contain the count.
    pub(super) fn replace(&mut self, position: usize, hash: u64, key: &Key, policy: &Policy, state: Count) {
        self.forget(self.list[position].hash, position);
        let Self { list, index } = self;
        index.insert_unique(hash, narrow(position), |&position| list[wide(position)].hash);
        let entry = &mut list[position];
        (entry.hash, entry.key, entry.state) = (hash, key.clone(), state);
        // Counting references is slow, and most entries have the same policy.
        if !entry.policy.is_clone_of(policy) {
            entry.policy = policy.clone();
        }
    }

    /// Removes an entry. The last entry takes its place.
    pub(super) fn swap_remove(&mut self, position: usize) -> Option<Entry> {
        let last = self.list.len().checked_sub(1)?;
        self.forget(self.list.get(position)?.hash, position);
        if position < last {
            self.relocate(self.list[last].hash, narrow(last), narrow(position));
        }
        Some(self.list.swap_remove(position))
    }

    /// Swaps two entries.
    pub(super) fn swap(&mut self, a: usize, b: usize) {
        let (hash_a, hash_b) = (self.list[a].hash, self.list[b].hash);
        self.relocate(hash_a, narrow(a), NOWHERE);
        self.relocate(hash_b, narrow(b), narrow(a));
        self.relocate(hash_a, NOWHERE, narrow(b));
        self.list.swap(a, b);
    }

    /// Removes an entry from the index.
    fn forget(&mut self, hash: u64, position: usize) {
        if let Ok(slot) = self.index.find_entry(hash, |&other| other == narrow(position)) {
            slot.remove();
        }
    }

    /// Changes the position of an entry in the index.
    fn relocate(&mut self, hash: u64, from: u32, to: u32) {
        if let Some(position) = self.index.find_mut(hash, |&position| position == from) {
            *position = to;
        }
    }
}

/// A position in the list.
#[inline]
fn wide(position: u32) -> usize {
    position as usize
}

/// A position in the index. At most [`Entries::MAX_LEN`], so nothing is cut off.
#[inline]
fn narrow(position: usize) -> u32 {
    position as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn an_entry_is_two_cache_lines() {
        assert_eq!(size_of::<Entry>(), 128);
    }

    /// The memory of a key in a full store depends on it.
    #[test]
    fn the_list_has_no_more_room_than_its_index() {
        let policy = Policy::per_minute("p", 1).unwrap();
        let mut entries = Entries::default();
        for key in 0..1_000_u32 {
            entries.push(Entry::new(key.into(), key.into(), policy.clone(), Count::new(&policy)));
            assert!(entries.list.capacity() <= entries.index.capacity(), "{} entries", entries.len());
        }
    }

    /// Counts with equal hashes are the hardest case, because their positions can only be told apart by comparing them.
    #[test]
    fn entries_are_found_after_any_swaps_and_removals() {
        let [policy, raised] = [1, 2].map(|limit| Policy::per_minute("p", limit).unwrap());
        for same_hash in [true, false] {
            let hash = |key: u32| if same_hash { 7 } else { (u64::from(key) << 57) | u64::from(key) };
            let (mut entries, mut expected) = (Entries::default(), Vec::new());
            let mut random = 1_u64;
            for key in 0..2_000_u32 {
                let entry = Entry::new(hash(key), key.into(), policy.clone(), Count::new(&policy));
                entries.push(entry);
                expected.push(key);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let [a, b] = [random >> 33, random >> 13].map(|n| n as usize % expected.len());
                entries.swap(a, b);
                expected.swap(a, b);
                if key % 3 > 0 {
                    let removed = entries.swap_remove(b).unwrap();
                    assert!(removed.key == Key::from(expected.swap_remove(b)));
                    assert_eq!(entries.find(&removed.key, &policy, removed.hash), None);
                }
                if key % 5 == 0 && !expected.is_empty() {
                    let (position, replaced) = (a % expected.len(), key + 1_000_000);
                    entries.replace(position, hash(replaced), &replaced.into(), &raised, Count::new(&raised));
                    assert_eq!(entries.get(position).unwrap().policy.limit(), 2);
                    expected[position] = replaced;
                }
                if key % 50 == 0 {
                    for (position, &key) in expected.iter().enumerate() {
                        assert_eq!(entries.find(&key.into(), &policy, hash(key)), Some(position));
                    }
                }
            }
            assert_eq!(entries.len(), expected.len());
            assert!(entries.swap_remove(entries.len()).is_none());
        }
    }
}
