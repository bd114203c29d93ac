//! The counts under one lock: finding them, charging them, and making room for new ones.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{hash::BuildHasher, mem};

use smallvec::SmallVec;

use crate::store::memory::entries::{Entries, Entry};
use crate::{
    check::Charge, key::Key, policy::Policy, runtime::random::FastState, store::memory::hold_counts::Count,
    verdict::Verdict,
};

/// The counts under one lock, and what is needed to make room for new ones.
pub(super) struct Shard {
    pub(super) entries: Entries,
    capacity: usize,
    /// Places that are reserved for the current check.
    promised: usize,
    /// Number of entries that the current check has added. These entries are the last ones.
    added: usize,
    /// The index at which the next sweep starts.
    hand: usize,
    /// The indices of the entries that become idle soonest, among the entries that were inspected while there was no
    /// room. The entries may have been charged since, so their times are read again before use.
    soonest: Vec<usize>,
    /// State of the generator that chooses candidates for eviction; never 0.
    random: u64,
}

/// Number of neighbours that are inspected to make room for a new key, and smallest number of candidates for eviction.
const SWEEP: usize = 8;
/// Largest number of candidates for eviction. More than [`SWEEP`] are inspected only while all of them have spent a
/// [`LARGE_SHARE`] of their limits or have open holds. If three of four counts have done so, one in 100 million
/// evictions finds no other count.
const MAX_CANDIDATES: usize = 64;
/// A large share of a limit: half of it. Shares are fractions of 2^32.
const LARGE_SHARE: u64 = 1 << 31;
/// What open holds add to the share of a limit: more than any share.
const OPEN: u64 = 1 << 33;

/// A live count that was dropped.
pub(super) struct Victim {
    pub(super) policy: Policy,
    pub(super) spent: u64,
}

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        // A random seed, so that clients cannot foresee which counts are inspected.
        let random = FastState::default().hash_one(capacity) | 1;
        let capacity = capacity.min(Entries::MAX_LEN / 2);
        Self { entries: Entries::default(), capacity, promised: 0, added: 0, hand: 0, soonest: Vec::new(), random }
    }

    /// The index of a count.
    #[inline]
    pub(super) fn find(&self, key: &Key, policy: &Policy, hash: u64) -> Option<usize> {
        self.entries.find(key, policy, hash)
    }

    /// Judges a check of one charge whose key is new.
    pub(super) fn judge_new(&mut self, charge: &Charge, hash: u64, now: u64) -> Verdict {
        let Charge { key, policy, .. } = charge;
        let mut state = Count::new(policy);
        let verdict = state.judge(charge, now);
        if !self.has_room() {
            self.keep(key, policy, hash, state, now);
        } else if state.idle_at(policy) > now {
            self.put(key, policy, hash, state, now);
        }
        verdict
    }

    /// Adds the state of a new count while there is room, in the place of a stale entry if the hand is at one, and
    /// drops another stale entry. Of two entries at the hand, about one is then stale, so that the shard is small and
    /// stays in the processor's caches. Not for a check of several charges, which finds its other entries by their
    /// indices.
    fn put(&mut self, key: &Key, policy: &Policy, hash: u64, state: Count, now: u64) {
        let is_stale = |entry: &Entry| entry.stale_at() <= now;
        if self.at_hand(is_stale) {
            self.entries.replace(self.hand, hash, key, policy, state);
        } else {
            self.entries.push(Entry::new(hash, key.clone(), policy.clone(), state));
        }
        self.hand += 1;
        if self.at_hand(is_stale) {
            self.take(self.hand);
        }
        // Two steps for each new entry, so that the hand gets around. An entry that has moved here from the end is
        // often new.
        self.hand += 1;
    }

    /// Adds the state of a new count, unless a peek or a denial left it empty. The shard must not have the count.
    pub(super) fn keep(&mut self, key: &Key, policy: &Policy, hash: u64, state: Count, now: u64) {
        if state.idle_at(policy) > now {
            self.entries.push(Entry::new(hash, key.clone(), policy.clone(), state));
            self.added += 1;
        }
    }

    /// Forgets a count. Returns whether the count was live.
    pub(super) fn remove(&mut self, key: &Key, policy: &Policy, hash: u64, now: u64) -> bool {
        let Some(index) = self.find(key, policy, hash) else { return false };
        let is_live = self.idle_at(index) > now;
        if !self.entries.state_mut(index).forget(policy) {
            self.take(index);
        }
        is_live
    }

    /// Takes all entries.
    pub(super) fn clear(&mut self) -> Entries {
        self.hand = 0;
        self.soonest.clear();
        mem::take(&mut self.entries)
    }

    /// For every entry that was added, drops idle entries near the hand. If the shard is still above its capacity and
    /// `evicts` is set, also drops a live entry. Returns the dropped live entries.
    #[inline]
    pub(super) fn make_room(&mut self, now: u64, evicts: bool) -> SmallVec<[Victim; 1]> {
        self.promised = 0;
        if self.added == 0 { SmallVec::new() } else { self.make_room_for_new(now, evicts) }
    }

    fn make_room_for_new(&mut self, now: u64, evicts: bool) -> SmallVec<[Victim; 1]> {
        let mut victims = SmallVec::new();
        for _ in 0..self.added {
            self.sweep(now);
            if evicts && self.entries.len() > self.capacity {
                victims.extend(self.evict(now));
            }
        }
        self.added = 0;
        victims
    }

    /// Drops stale entries among the next few, and all idle ones if there is no room.
    fn sweep(&mut self, now: u64) {
        let has_room = self.has_room();
        for _ in 0..SWEEP.min(self.entries.len()) {
            if self.at_hand(|entry| now >= if has_room { entry.stale_at() } else { entry.idle_at() }) {
                self.take(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }

    /// Whether the entry at the hand has a property. Moves the hand from the end to the start.
    fn at_hand(&mut self, property: impl Fn(&Entry) -> bool) -> bool {
        if self.hand >= self.entries.len() {
            self.hand = 0;
        }
        self.entries.get(self.hand).is_some_and(property)
    }

    /// Drops the candidate without open holds that has spent the smallest share of its limit, and among equals the
    /// candidate that becomes idle soonest. If all have open holds, drops one of them in the same way. Returns the
    /// dropped entry if it was live.
    ///
    /// The candidates are at random places, because neighbours were often added by the same client or under the same
    /// policy, and may all be spent. A new entry is dropped only if there is no other: a client whose count is always
    /// dropped would be unlimited.
    #[cold]
    fn evict(&mut self, now: u64) -> Option<Victim> {
        let candidates = match self.entries.len() - self.added {
            0 => self.entries.len(),
            old => old,
        };
        let mut least = (u64::MAX, u64::MAX, 0);
        for seen in 0..MAX_CANDIDATES {
            if seen >= SWEEP && least.0 < LARGE_SHARE {
                break;
            }
            let index = self.random_below(candidates);
            least = least.min((self.worth(index, now), self.idle_at(index), index));
        }
        let entry = self.take(least.2)?;
        let spent = entry.spent(now);
        (entry.idle_at() > now).then_some(Victim { policy: entry.policy, spent })
    }

    /// Removes an entry. The last entry takes the place of the removed entry, or the last entry that is not new does,
    /// so that new entries stay at the end.
    fn take(&mut self, mut index: usize) -> Option<Entry> {
        let first_new = self.entries.len().checked_sub(self.added)?;
        if index >= first_new {
            self.added = self.added.saturating_sub(1);
        } else if self.added > 1 {
            self.entries.swap(index, first_new - 1);
            self.moved(first_new - 1, index);
            index = first_new - 1;
        }
        let taken = self.entries.swap_remove(index);
        self.moved(self.entries.len(), index);
        taken
    }

    /// Updates `soonest` after the entry at `from` has taken the place of the removed entry at `to`.
    fn moved(&mut self, from: usize, to: usize) {
        if !self.soonest.is_empty() {
            self.soonest.retain(|index| *index != to);
            self.soonest.iter_mut().filter(|index| **index == from).for_each(|index| *index = to);
        }
    }

    /// Makes room for one more entry by dropping idle ones. The error is the time, in microseconds, at which enough of
    /// the inspected entries are idle for the current check; `None` if the check needs more places than there are.
    #[cold]
    pub(super) fn find_room(&mut self, now: u64) -> Result<(), Option<u64>> {
        self.sweep(now);
        let mut inspected = mem::take(&mut self.soonest);
        inspected.extend(self.neighbours(self.missing()));
        inspected.sort_unstable();
        inspected.dedup();
        inspected.sort_by_key(|&index| self.idle_at(index));
        inspected.truncate(self.missing().max(SWEEP));
        self.soonest = inspected;
        while let Some(&first) = self.soonest.first()
            && self.idle_at(first) <= now
        {
            self.take(first);
        }
        if self.has_room() {
            return Ok(());
        }
        let last = self.soonest.get(self.missing() - 1).or(self.soonest.last());
        let until = last.map_or(0, |&index| self.idle_at(index)).max(now + 1);
        Err((self.promised < self.capacity).then_some(until))
    }

    /// Whether one more entry fits, besides those that are reserved.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() + self.promised < self.capacity
    }

    /// Number of entries that have to leave before one more may be added.
    fn missing(&self) -> usize {
        (self.entries.len() + self.promised + 1).saturating_sub(self.capacity)
    }

    /// Reserves a place for an entry that may be added before [`make_room`](Self::make_room).
    pub(super) fn promise(&mut self) {
        self.promised += 1;
    }

    /// The indices of a few entries before the hand, of at least `least` entries.
    fn neighbours(&self, least: usize) -> impl Iterator<Item = usize> + use<> {
        let (hand, entries) = (self.hand, self.entries.len());
        (1..=SWEEP.max(least).min(entries)).map(move |back| (hand + entries - back) % entries)
    }

    /// A random number (xorshift) below a bound that is at most the capacity.
    fn random_below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // 32 bits scaled to the bound, which needs no division.
        usize::try_from(((self.random >> 32) * bound as u64) >> 32).unwrap_or(0)
    }

    /// The share of its limit that an entry has spent, as a fraction of 2^32; more than the whole if it has open holds,
    /// because a limit that forgets requests that run admits too many beside them.
    fn worth(&self, index: usize, now: u64) -> u64 {
        let share = |entry: &Entry| {
            let (spent, capacity) = (entry.spent(now), entry.policy.capacity());
            // The lowest bits of a large limit are left out, so that the product fits.
            let low_bits = capacity.ilog2().saturating_sub(31);
            ((spent >> low_bits) << 32) / (capacity >> low_bits)
        };
        self.entries.get(index).map_or(0, |entry| share(entry) + u64::from(entry.state.has_open_holds(now)) * OPEN)
    }

    /// When an entry becomes idle, in microseconds.
    fn idle_at(&self, index: usize) -> u64 {
        self.entries.get(index).map_or(0, Entry::idle_at)
    }
}

/// Locks a shard. A panic under the lock cannot leave a count half changed, so poisoning is ignored.
pub(super) fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
