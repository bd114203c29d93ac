//! A part of the table under one lock: finding counts, charging them, and making room for new ones.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use indexmap::{
    IndexMap,
    map::{RawEntryApiV1, raw_entry_v1::RawEntryMut},
};
use smallvec::SmallVec;

use super::full::Victim;
use crate::{algorithm::State, check::Charge, key::Key, policy::Policy, store::Outcome};

pub(super) struct Shard {
    pub(super) entries: IndexMap<Slot, State>,
    capacity: usize,
    /// Places that a check under way has been promised.
    promised: usize,
    /// New entries since the last sweep, …
    added: usize,
    /// … and where the next one begins.
    hand: usize,
    /// The entry that becomes idle soonest of those that were looked at while there was no room. It may have moved: it
    /// is looked at again before it is believed.
    soonest: usize,
}

/// What identifies a count: the subject, the policy's name, and what makes counts incompatible.
pub(super) struct Slot {
    key: Key,
    policy: Policy,
}

/// How many neighbours are looked at to make room for a new key.
const SWEEP: usize = 8;

impl Slot {
    #[inline]
    fn is(&self, key: &Key, policy: &Policy) -> bool {
        self.policy.counts_with(policy) && self.key == *key
    }
}

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: IndexMap::default(), capacity, promised: 0, added: 0, hand: 0, soonest: 0 }
    }

    pub(super) fn find(&self, key: &Key, policy: &Policy, hash: u64) -> Option<usize> {
        self.entries.raw_entry_v1().index_from_hash(hash, |slot| slot.is(key, policy))
    }

    /// Both steps at once, for a check of one charge whose key is new.
    pub(super) fn judge_new(&mut self, charge: &Charge, hash: u64, now: u64) -> Outcome {
        let Charge { key, policy, cost } = charge;
        let mut state = State::new(policy);
        let outcome = state.judge(policy, now, *cost);
        self.keep(key, policy, hash, state, now);
        outcome
    }

    /// Keeps the state of a charge that had none, unless a peek or a denial left no trace in it.
    pub(super) fn keep(&mut self, key: &Key, policy: &Policy, hash: u64, state: State, now: u64) {
        if state.idle_at(policy) > now
            && let RawEntryMut::Vacant(vacant) =
                self.entries.raw_entry_mut_v1().from_hash(hash, |slot| slot.is(key, policy))
        {
            let slot = Slot { key: key.clone(), policy: policy.clone() };
            vacant.insert_hashed_nocheck(hash, slot, state);
            self.added += 1;
        }
    }

    /// Forgets a count. Tells whether it was live.
    pub(super) fn remove(&mut self, key: &Key, policy: &Policy, hash: u64, now: u64) -> bool {
        let found = self.find(key, policy, hash).and_then(|index| self.entries.swap_remove_index(index));
        found.is_some_and(|(slot, state)| state.idle_at(&slot.policy) > now)
    }

    /// For every entry that was added, drops idle ones near the hand and, if there are too many still and `evicts` says
    /// so, a live one among them. Returns the live ones that were dropped.
    #[inline]
    pub(super) fn make_room(&mut self, now: u64, evicts: bool) -> SmallVec<[Victim; 1]> {
        self.promised = 0;
        if self.added == 0 { SmallVec::new() } else { self.make_room_for_new(now, evicts) }
    }

    fn make_room_for_new(&mut self, now: u64, evicts: bool) -> SmallVec<[Victim; 1]> {
        let mut victims = SmallVec::new();
        let added = mem::take(&mut self.added);
        // New entries come last.
        let first_new = self.entries.len().saturating_sub(added);
        for _ in 0..added {
            self.sweep(now);
            if evicts && self.entries.len() > self.capacity {
                victims.extend(self.evict(first_new, now));
            }
        }
        victims
    }

    /// Drops idle entries among the next few.
    fn sweep(&mut self, now: u64) {
        for _ in 0..SWEEP.min(self.entries.len()) {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            if self.idle_at(self.hand) <= now {
                self.entries.swap_remove_index(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }

    /// Drops the entry that gives away least: of the few before the hand the one that has spent the smallest share of
    /// its limit, and among equals the one that becomes idle soonest. A new entry is dropped only where there is no
    /// other: a client whose count never stays would be unlimited. Returns what is lost, if the entry was live.
    #[cold]
    fn evict(&mut self, first_new: usize, now: u64) -> Option<Victim> {
        let worth = |&index: &usize| {
            let share = self.entries.get_index(index).map_or(0, |(slot, state)| {
                let spent = slot.policy.capacity() - state.available(&slot.policy, now);
                (u64::from(spent) << 32) / u64::from(slot.policy.capacity())
            });
            (index >= first_new, share, self.idle_at(index))
        };
        let victim = self.neighbours().min_by_key(worth)?;
        let (Slot { policy, .. }, state) = self.entries.swap_remove_index(victim)?;
        let spent = policy.capacity() - state.available(&policy, now);
        (state.idle_at(&policy) > now).then_some(Victim { policy, spent })
    }

    /// Whether one more entry may be added without a live one being dropped. Otherwise, when the first entry that is
    /// known of becomes idle.
    #[cold]
    pub(super) fn find_room(&mut self, now: u64) -> Result<(), u64> {
        self.sweep(now);
        let known = self.neighbours().chain([self.soonest]).filter(|&index| index < self.entries.len());
        self.soonest = known.min_by_key(|&index| self.idle_at(index)).unwrap_or(0);
        let idle_at = self.idle_at(self.soonest);
        if idle_at <= now {
            self.entries.swap_remove_index(self.soonest);
        }
        if self.has_room() { Ok(()) } else { Err(idle_at.max(now + 1)) }
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() + self.promised < self.capacity
    }

    /// Keeps a place for an entry that may be added before [`make_room`](Self::make_room).
    pub(super) fn promise(&mut self) {
        self.promised += 1;
    }

    /// The few entries before the hand.
    fn neighbours(&self) -> impl Iterator<Item = usize> + use<> {
        let (hand, entries) = (self.hand, self.entries.len());
        (1..=SWEEP.min(entries)).map(move |back| (hand + entries - back) % entries)
    }

    fn idle_at(&self, index: usize) -> u64 {
        self.entries.get_index(index).map_or(0, |(slot, state)| state.idle_at(&slot.policy))
    }
}

/// A panic under the lock cannot leave a count half changed, so a poisoned lock is as good as any.
pub(super) fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
