//! The judgement of a check: all charges are evaluated, then paid together or not at all.

use std::{slice, sync::MutexGuard};

use smallvec::SmallVec;

use super::{
    MemoryStore, Place,
    full::{Victim, WhenFull},
    shard::{Shard, lock},
};
use crate::{
    algorithm::{Admission, CountState},
    check::Charge,
    key::Key,
    policy::Policy,
    store::ban::{self, Count},
    verdict::{Outcome, Source, Verdict},
};

/// A count that a check concerns, and what step one has found.
struct Counted<'a> {
    key: &'a Key,
    count: Count<'a>,
    place: Place,
    room: Room,
    index: Option<usize>,
    fits: bool,
}

/// Where a count that a check concerns is kept.
enum Room {
    /// In its own place: it has one, or a live count is dropped for it.
    Own,
    /// In its own place, which is free. It begins with what the key may have spent in a shared bucket.
    Free { start: Option<Box<CountState>> },
    /// In the bucket of the policy that new keys share. Charges of the same check before this one spend `ahead` there.
    Shared { ahead: u32 },
    /// Nowhere: the store is full until this time at least.
    Nowhere { until: u64 },
}

/// The shared buckets, as the number of a shard: they are locked last.
const SHARED: usize = usize::MAX;

type Guards<'a> = SmallVec<[MutexGuard<'a, Shard>; 1]>;

impl MemoryStore {
    /// Charges a count of the key's own. If the store is full and drops nothing, a new key is not counted at all: the
    /// bucket that new keys share is not charged either.
    pub(crate) fn charge_own_count(&self, charge: &Charge) {
        self.judge_one(charge, false);
    }

    /// What a key has spent by a count of its own. 0 if it has none.
    pub(crate) fn spent(&self, key: &Key, policy: &Policy) -> u32 {
        let place = self.place(key, policy);
        let shard = lock(&self.table.shards[place.shard]);
        let state = shard.find(key, policy, place.hash).map(|index| &shard.entries[index]);
        state.map_or(0, |state| policy.capacity() - state.available(policy, self.now_us()))
    }

    /// The common case of [`judge`](Self::judge): one charge, one lock.
    pub(super) fn judge_one(&self, charge: &Charge, may_share: bool) -> Verdict {
        let place = self.place(&charge.key, &charge.policy);
        let mut shard = lock(&self.table.shards[place.shard]);
        let now = self.now_us();
        let outcome = match shard.find(&charge.key, &charge.policy, place.hash) {
            Some(index) => shard.entries[index].evaluate_and_commit(&charge.policy, now, charge.cost),
            None if self.evicts() || self.has_place(&mut shard, now) => shard.judge_new(charge, place.hash, now),
            None => {
                drop(shard);
                return self.judge(slice::from_ref(charge), may_share);
            }
        };
        let victims = shard.make_room(now, self.evicts());
        drop(shard);
        if !victims.is_empty() {
            self.table.fullness.report(&victims);
        }
        Verdict { allowed: outcome.fits, source: Source::Store, time_us: now, outcomes: SmallVec::from([outcome]) }
    }

    /// Judges a check. Counts that get no place of their own go to the buckets that new keys share, if the check
    /// `may_share` and the store is set to [`WhenFull::ShareOneBucket`].
    pub(super) fn judge(&self, charges: &[Charge], may_share: bool) -> Verdict {
        let mut counts: SmallVec<[Counted<'_>; 2]> = charges.iter().flat_map(|charge| self.counts(charge)).collect();
        // Locks are taken in one order everywhere, so that two checks never wait for each other.
        let mut order: SmallVec<[usize; 1]> = counts.iter().map(|counted| counted.place.shard).collect();
        order.sort_unstable();
        order.dedup();
        let mut guards: Guards<'_> = order.iter().map(|&shard| lock(&self.table.shards[shard])).collect();
        // Read under the locks, so that no earlier judgement used a later time.
        let now = self.now_us();

        if !self.evicts() && self.find_places(&mut counts, &order, &mut guards, now) {
            let mut shared = lock(&self.table.fullness.shared);
            self.share(&mut counts, &mut shared, now, may_share);
            order.push(SHARED);
            guards.push(shared);
        }
        for counted in &mut counts {
            guards[position(&order, counted)].evaluate(counted, now);
        }
        let allowed = counts.iter().all(|counted| counted.fits);
        let mut outcomes: SmallVec<[Outcome; 1]> = SmallVec::new();
        for number in 0..counts.len() {
            let (before, rest) = counts.split_at_mut(number);
            let Some((counted, after)) = rest.split_first_mut() else { break };
            let shard = &mut guards[position(&order, counted)];
            match (outcomes.last_mut(), before.last()) {
                (Some(outcome), Some(own)) if counted.count.policy.is_ban() => {
                    // By what it was before the rejection was counted.
                    let denied = !own.fits && own.has_own_place() && counted.has_own_place();
                    *outcome = ban::merge(*outcome, shard.deny(counted, now, denied));
                }
                _ => {
                    let banned = after.first().is_some_and(|next| next.count.policy.is_ban() && !next.fits);
                    let admission = if banned { Admission::Banned } else { Admission::of(allowed) };
                    outcomes.push(shard.commit(counted, now, admission));
                    if let Room::Shared { .. } = counted.room
                        && let Some(idle_at) = shard.idle_at_of(counted)
                    {
                        self.table.fullness.shared_until(idle_at);
                    }
                }
            }
        }
        // Only now, because it moves entries about.
        let victims: SmallVec<[Victim; 1]> =
            guards.iter_mut().flat_map(|shard| shard.make_room(now, self.evicts())).collect();
        drop(guards);
        if !victims.is_empty() {
            self.table.fullness.report(&victims);
        } else if counts.iter().any(|counted| !counted.count.policy.is_ban() && !counted.has_own_place()) {
            self.table.fullness.warn();
        }
        Verdict { allowed, source: Source::Store, time_us: now, outcomes }
    }

    fn evicts(&self) -> bool {
        self.table.fullness.when_full() == WhenFull::EvictLeastSpent
    }

    /// Whether a new key gets a place of its own, and nothing has to be known of shared buckets for that.
    fn has_place(&self, shard: &mut Shard, now: u64) -> bool {
        !self.table.fullness.is_shared(now) && (shard.has_room() || shard.find_room(now).is_ok())
    }

    /// Finds out which new counts get a place. Tells whether the shared buckets are needed: to count what gets none, or
    /// because a key that gets one may have charged them.
    ///
    /// Charges come first, because they need a place for the check to pass. What is left is for the counts of denials.
    /// A peek needs no place: it is only told whether there is one.
    fn find_places(&self, counts: &mut [Counted<'_>], order: &[usize], guards: &mut Guards<'_>, now: u64) -> bool {
        let mut is_new = false;
        for charges in [true, false] {
            for counted in counts.iter_mut().filter(|counted| counted.is_charge() == charges) {
                let shard = &mut guards[position(order, counted)];
                if shard.find(counted.key, counted.count.policy, counted.place.hash).is_some() {
                    continue;
                }
                let found = if shard.has_room() { Ok(()) } else { shard.find_room(now) };
                counted.room = match found {
                    Ok(()) => Room::Free { start: None },
                    Err(until) => Room::Nowhere { until },
                };
                if counted.count.cost > 0 && (charges || found.is_ok()) {
                    // Also without a place: the next charge of the check has to wait for one more.
                    shard.promise();
                }
                is_new |= !counted.count.policy.is_ban() && (found.is_err() || self.table.fullness.is_shared(now));
            }
        }
        is_new && self.table.fullness.when_full() == WhenFull::ShareOneBucket
    }

    /// Begins new counts with what their keys may have spent in the shared buckets. If the check `may_share`, counts
    /// there what got no place.
    fn share<'a>(&'a self, counts: &mut [Counted<'a>], shared: &mut Shard, now: u64, may_share: bool) {
        let key = &self.table.fullness.shared_key;
        for number in 0..counts.len() {
            let (before, rest) = counts.split_at_mut(number);
            let Some(counted) = rest.first_mut().filter(|counted| !counted.count.policy.is_ban()) else { continue };
            let policy = counted.count.policy;
            let bucket = shared.find(key, policy, policy.name_hash());
            match &mut counted.room {
                Room::Free { start } => *start = bucket.map(|index| Box::new(shared.entries[index].clone())),
                Room::Nowhere { .. }
                    if may_share && (bucket.is_some() || shared.has_room() || shared.find_room(now).is_ok()) =>
                {
                    let same = |other: &&Counted<'_>| other.place.shard == SHARED && other.count.policy == policy;
                    let ahead =
                        before.iter().filter(same).fold(0_u32, |sum, other| sum.saturating_add(other.count.cost));
                    counted.room = Room::Shared { ahead };
                    counted.place = Place { shard: SHARED, hash: policy.name_hash() };
                    counted.key = key;
                }
                Room::Own | Room::Shared { .. } | Room::Nowhere { .. } => {}
            }
        }
    }

    fn counts<'a>(&self, charge: &'a Charge) -> impl Iterator<Item = Counted<'a>> + use<'a, '_> {
        ban::counts(charge).map(|count| {
            let (key, place) = (&charge.key, self.place(&charge.key, count.policy));
            Counted { key, count, place, room: Room::Own, index: None, fits: false }
        })
    }
}

/// Where the shard of a count is among those that are locked.
fn position(order: &[usize], counted: &Counted<'_>) -> usize {
    order.partition_point(|&other| other < counted.place.shard)
}

impl Counted<'_> {
    /// Whether it is charged if the check passes.
    fn is_charge(&self) -> bool {
        self.count.cost > 0 && !self.count.policy.is_ban()
    }

    fn has_own_place(&self) -> bool {
        matches!(self.room, Room::Own | Room::Free { .. })
    }

    /// The state of a count that is not in the table.
    fn start(&self) -> CountState {
        match &self.room {
            Room::Free { start: Some(start) } => CountState::clone(start),
            _ => CountState::new(self.count.policy),
        }
    }
}

impl Shard {
    /// Step one.
    fn evaluate(&self, counted: &mut Counted<'_>, now: u64) {
        let Count { policy, cost } = counted.count;
        counted.index = self.find(counted.key, policy, counted.place.hash);
        let ahead = match counted.room {
            // A count of denials that has no place does not ban.
            Room::Nowhere { .. } => {
                counted.fits = cost == 0 || policy.is_ban();
                return;
            }
            Room::Shared { ahead } if cost > 0 => ahead,
            _ => 0,
        };
        let cost = cost.saturating_add(ahead);
        counted.fits = match counted.index {
            Some(index) => self.entries[index].evaluate(policy, now, cost),
            None => counted.start().evaluate(policy, now, cost),
        };
    }

    /// Step two.
    fn commit(&mut self, counted: &Counted<'_>, now: u64, admission: Admission) -> Outcome {
        let &Counted { key, count: Count { policy, cost }, ref place, ref room, index, fits } = counted;
        let index = match room {
            Room::Nowhere { until } if !policy.is_ban() => return turned_away(policy, cost, fits, until - now),
            // A charge of the same check may have made it.
            Room::Shared { .. } => self.find(key, policy, place.hash),
            _ => index,
        };
        if let Some(index) = index {
            return self.entries[index].commit(policy, now, cost, fits, admission);
        }
        let mut state = counted.start();
        let outcome = state.commit(policy, now, cost, fits, admission);
        // What was spent in a shared bucket is in that bucket, and needs no place of its own.
        let is_charged =
            admission == Admission::Admitted || (admission == Admission::Rejected && policy.count_rejected());
        if is_charged && cost > 0 {
            self.keep(key, policy, place.hash, state, now);
        }
        outcome
    }

    /// Step two for a count of denials.
    fn deny(&mut self, counted: &Counted<'_>, now: u64, denied: bool) -> Outcome {
        let &Counted { key, count: Count { policy, cost }, ref place, fits, .. } = counted;
        let pays = denied && fits && cost > 0;
        let outcome = self.commit(counted, now, Admission::of(pays));
        match self.find(key, policy, place.hash) {
            // The last one: the ban lasts from now on.
            Some(index) if pays && outcome.available == 0 => {
                self.entries[index].commit(policy, now, policy.limit(), false, Admission::Admitted)
            }
            _ => outcome,
        }
    }

    /// When a count that is kept becomes idle.
    fn idle_at_of(&self, counted: &Counted<'_>) -> Option<u64> {
        let Counted { key, count: Count { policy, .. }, place, .. } = counted;
        self.find(key, policy, place.hash).map(|index| self.entries[index].idle_at(policy))
    }
}

/// The outcome of a charge whose key has no place for `wait_us`.
fn turned_away(policy: &Policy, cost: u32, fits: bool, wait_us: u64) -> Outcome {
    Outcome {
        fits,
        available: 0,
        retry_after_us: (!fits && cost <= policy.capacity()).then_some(wait_us),
        next_us: wait_us,
        reset_us: wait_us,
        ban_us: 0,
    }
}
