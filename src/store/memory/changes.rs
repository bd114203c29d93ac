//! Changes of one count that are no checks: of its holds, and by hand.

use crate::error::{Error, ErrorKind};
use crate::hold::{HoldChange, HoldId, SettleAnswer};
use crate::store::CountChange;
use crate::store::ban::{self, PolicyCost};
use crate::store::memory::shard::{Shard, lock};
use crate::store::memory::{hold_counts::Count, judge::now_us, table::Table};
use crate::{check::Charge, clock::Clock, key::Key, policy::Policy};

/// Why a key without a count cannot be changed by hand.
const FULL: &str = "the memory store is full of live counts; give it more room with `MemoryStore::with_capacity`";

impl Table {
    /// The units that a key has spent by its own count; 0 without a count.
    pub(super) fn spent(&self, key: &Key, policy: &Policy, clock: &dyn Clock) -> u64 {
        let place = self.place(key, policy);
        let shard = lock(&self.shards[place.shard]);
        let state = shard.find(key, policy, place.hash).map(|index| shard.entries.state(index));
        state.map_or(0, |state| policy.capacity() - state.available(policy, now_us(clock)))
    }

    /// Holds units in the key's own count, whether or not they fit. Also ends holds whose time has passed, because a
    /// count that is never judged would keep them.
    pub(super) fn hold_anyway(&self, key: &Key, policy: &Policy, id: HoldId, units: u64, clock: &dyn Clock) {
        let place = self.place(key, policy);
        let mut shard = lock(&self.shards[place.shard]);
        let now = now_us(clock);
        if let Some(index) = shard.find(key, policy, place.hash) {
            let count = shard.entries.state_mut(index);
            count.end_expired(policy, now);
            count.hold(policy, now, id, units);
        } else if self.evicts() || shard.has_room() || shard.find_room(now).is_ok() {
            let mut count = self.first_count(policy, now);
            count.hold(policy, now, id, units);
            shard.keep(key, policy, place.hash, count, now);
        }
        let victims = shard.make_room(now, self.evicts());
        drop(shard);
        if !victims.is_empty() {
            self.fullness.report(victims);
        }
    }

    /// Changes a hold, in its key's own count and in the bucket that new keys share: a count that starts with what the
    /// bucket has spent has its holds too.
    pub(super) fn change_hold(&self, hold: &Charge, change: HoldChange, clock: &dyn Clock) -> SettleAnswer {
        let Some(id) = hold.hold else { return SettleAnswer::NotHeld };
        let Charge { key, policy, .. } = hold;
        let place = self.place(key, policy);
        let mut shard = lock(&self.shards[place.shard]);
        let now = now_us(clock);
        let denial = ban::denied_settlement(hold, change)
            .filter(|_| shard.denies_settlement(key, policy, place.hash, now, id, change));
        let mut answer = shard.change_hold(key, policy, place.hash, now, id, change);
        let victims = denial.map(|denial| {
            self.count_denial(&mut shard, key, denial, now);
            shard.make_room(now, self.evicts())
        });
        if self.fullness.is_shared(now) {
            let (key, hash) = (&self.fullness.shared_key, policy.name_hash());
            let mut shared = lock(&self.fullness.shared);
            if shared.change_hold(key, policy, hash, now, id, change) == SettleAnswer::Settled {
                self.fullness.shared_until(shared.idle_at_of(key, policy, hash));
                answer = SettleAnswer::Settled;
            }
        }
        drop(shard);
        if let Some(victims) = victims.filter(|victims| !victims.is_empty()) {
            self.fullness.report(victims);
        }
        answer
    }

    /// Counts a denial of a key that no check has had. Only if its count has a place or gets one, as in a check.
    fn count_denial(&self, shard: &mut Shard, key: &Key, denial: PolicyCost<'_>, now: u64) {
        let mut counted = self.counted(key, denial);
        let is_known = shard.find(key, denial.policy, counted.place.hash).is_some();
        if is_known || self.evicts() || shard.has_room() || shard.find_room(now).is_ok() {
            shard.evaluate(&mut counted, now);
            shard.commit_denial(&counted, now, true);
        }
    }

    /// Changes a count by hand. See [`Store::change_count`](crate::store::Store::change_count).
    pub(super) fn change_count(
        &self,
        key: &Key,
        policy: &Policy,
        change: CountChange,
        clock: &dyn Clock,
    ) -> Result<u64, Error> {
        let place = self.place(key, policy);
        let mut shard = lock(&self.shards[place.shard]);
        let now = now_us(clock);
        if let Some(index) = shard.find(key, policy, place.hash) {
            return Ok(shard.entries.state_mut(index).change_by_hand(policy, now, change));
        }
        let mut count = match change {
            CountChange::Ban(_) | CountChange::Record(_) => self.first_count(policy, now),
            // These make no count, so that the key keeps to the bucket that new keys share.
            CountChange::Unban | CountChange::Credit(_) => Count::new(policy),
        };
        let changed = count.change_by_hand(policy, now, change);
        let needs_place = count.idle_at(policy) > now;
        if needs_place && !self.evicts() && !shard.has_room() && shard.find_room(now).is_err() {
            return Err(Error::new(ErrorKind::Unavailable, FULL));
        }
        shard.keep(key, policy, place.hash, count, now);
        let victims = shard.make_room(now, self.evicts());
        drop(shard);
        if !victims.is_empty() {
            self.fullness.report(victims);
        }
        Ok(changed)
    }

    /// The count with which a new key starts: what the key may have spent in the bucket that new keys share. Called
    /// under the lock of the key's shard.
    fn first_count(&self, policy: &Policy, now: u64) -> Count {
        if self.fullness.is_shared(now) {
            let shared = lock(&self.fullness.shared);
            if let Some(index) = shared.find(&self.fullness.shared_key, policy, policy.name_hash()) {
                return shared.entries.state(index).clone();
            }
        }
        Count::new(policy)
    }

    /// Forgets a count. Returns whether it was live.
    pub(super) fn remove(&self, key: &Key, policy: &Policy, clock: &dyn Clock) -> bool {
        let place = self.place(key, policy);
        let mut shard = lock(&self.shards[place.shard]);
        shard.remove(key, policy, place.hash, now_us(clock))
    }
}
