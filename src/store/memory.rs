//! The embedded store: counts in the process, no server.

use std::{
    fmt,
    hash::BuildHasher,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use indexmap::{
    IndexMap,
    map::{RawEntryApiV1, raw_entry_v1::RawEntryMut},
};
use smallvec::SmallVec;

use super::{
    Answer, Outcome, Store, Verdict,
    ban::{self, Count},
};
use crate::{
    algorithm::{Pays, State},
    check::{Charge, Check},
    clock::{Clock, SystemClock},
    decision::Source,
    error::ConfigError,
    key::Key,
    policy::Policy,
};

/// Counts in this process: the default, for one instance, for tests and for development.
///
/// Clones share their counts. There is no background thread and nothing to call: idle keys are dropped a few at a
/// time whenever a new key comes in.
///
/// # Bounded memory
///
/// At most [`DEFAULT_CAPACITY`](Self::DEFAULT_CAPACITY) keys are kept, see
/// [`with_capacity`](Self::with_capacity). When the store is full, a new key takes the place of an idle one (whose
/// window has passed, so nothing is lost); if there is none nearby, of the one among a few that becomes idle
/// soonest. That one's client starts afresh, so give the store room for the clients of one window.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let policy = Policy::per_minute("emails", 10)?;
/// assert!(limiter.check("user:17", &policy, 1).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    table: Arc<Table>,
    clock: Arc<dyn Clock>,
}

struct Table {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

/// More than cores contend for.
const SHARDS: usize = 64;
/// How many neighbours are looked at to make room for a new key.
const SWEEP: usize = 8;

impl MemoryStore {
    /// The default capacity, 100 000 keys: about 20 MB when clients send a few requests each.
    pub const DEFAULT_CAPACITY: usize = 100_000;

    /// Creates a store with room for [`DEFAULT_CAPACITY`](Self::DEFAULT_CAPACITY) keys.
    pub fn new() -> Self {
        Self::build(Self::DEFAULT_CAPACITY)
    }

    /// Creates a store with room for `keys` keys (a client under one policy is one), and up to an eighth more.
    ///
    /// # Errors
    ///
    /// [`ConfigError::ZeroCapacity`] if `keys` is 0.
    pub fn with_capacity(keys: usize) -> Result<Self, ConfigError> {
        if keys == 0 {
            return Err(ConfigError::ZeroCapacity);
        }
        Ok(Self::build(keys))
    }

    /// Takes the time from `clock`. Defaults to [`SystemClock`].
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How many keys are kept right now, idle ones included.
    pub fn len(&self) -> usize {
        self.table.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// Whether no key is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn build(keys: usize) -> Self {
        // Keys spread unevenly, so shards are large and have an eighth more room than their share.
        let shards = (keys / 1_024).clamp(1, SHARDS);
        let share = keys.div_ceil(shards);
        let capacity = if shards == 1 { share } else { share + share / 8 };
        let shard = || Mutex::new(Shard { entries: IndexMap::default(), capacity, added: 0, hand: 0 });
        let table = Table { shards: (0..shards).map(|_| shard()).collect(), hasher: RandomState::default() };
        Self { table: Arc::new(table), clock: Arc::new(SystemClock) }
    }

    /// Far beyond any date, so that no sum of times overflows.
    fn now_us(&self) -> u64 {
        self.clock.now_us().min(1 << 53)
    }

    /// A subject's policies share a shard, so that the common check takes one lock.
    fn place(&self, key: &Key, policy: &Policy) -> Place {
        let subject = self.table.hasher.hash_one(key);
        // 32 bits as a fraction of the shards, which needs no division: the middle ones, for a shard's table goes by
        // the first and the last.
        let fraction = (subject >> 16) & u64::from(u32::MAX);
        let shard = usize::try_from((fraction * self.table.shards.len() as u64) >> 32).unwrap_or(0);
        // The subject's hash has a random seed, so nobody can choose keys that collide.
        Place { shard, hash: subject ^ policy.name_hash().rotate_left(32) }
    }

    /// The common case of [`judge`](Self::judge): one charge, one lock.
    fn judge_one(&self, charge: &Charge) -> Verdict {
        let place = self.place(&charge.key, &charge.policy);
        let mut shard = lock(&self.table.shards[place.shard]);
        let now = self.now_us();
        let outcome = shard.judge(charge, place.hash, now);
        shard.make_room(now);
        Verdict { allowed: outcome.fits, source: Source::Store, time_us: now, outcomes: SmallVec::from([outcome]) }
    }

    fn judge(&self, charges: &[Charge]) -> Verdict {
        let mut counts: SmallVec<[Counted<'_>; 2]> = charges.iter().flat_map(|charge| self.counts(charge)).collect();
        // Locks are taken in one order everywhere, so that two checks never wait for each other.
        let mut order: SmallVec<[usize; 1]> = counts.iter().map(|counted| counted.place.shard).collect();
        order.sort_unstable();
        order.dedup();
        let mut guards: SmallVec<[MutexGuard<'_, Shard>; 1]> =
            order.iter().map(|&shard| lock(&self.table.shards[shard])).collect();
        let guard_of = |shard: usize| order.partition_point(|&other| other < shard);
        // Read under the locks: nobody who judged before us used a later time.
        let now = self.now_us();

        for counted in &mut counts {
            guards[guard_of(counted.place.shard)].evaluate(counted, now);
        }
        let allowed = counts.iter().all(|counted| counted.fits);
        let mut outcomes: SmallVec<[Outcome; 1]> = SmallVec::new();
        for (number, counted) in counts.iter().enumerate() {
            let shard = &mut guards[guard_of(counted.place.shard)];
            match outcomes.last_mut() {
                Some(own) if counted.count.policy.is_ban() => {
                    // By what it was before the rejection was counted.
                    *own = ban::merge(*own, shard.deny(counted, now, !counts[number - 1].fits))
                }
                _ => {
                    let banned = counts.get(number + 1).is_some_and(|next| next.count.policy.is_ban() && !next.fits);
                    let pays = if banned { Pays::Nothing } else { Pays::of(allowed) };
                    outcomes.push(shard.commit(counted, now, pays));
                }
            }
        }
        // Only now, for it moves entries about.
        guards.iter_mut().for_each(|shard| shard.make_room(now));
        Verdict { allowed, source: Source::Store, time_us: now, outcomes }
    }

    fn counts<'a>(&self, charge: &'a Charge) -> impl Iterator<Item = Counted<'a>> + use<'a, '_> {
        ban::counts(charge).map(|count| {
            let (key, place) = (&charge.key, self.place(&charge.key, count.policy));
            Counted { key, count, place, index: None, fits: false }
        })
    }
}

/// A count that a check concerns, and what step one has found.
struct Counted<'a> {
    key: &'a Key,
    count: Count<'a>,
    place: Place,
    index: Option<usize>,
    fits: bool,
}

/// Where a count is kept.
struct Place {
    shard: usize,
    hash: u64,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("len", &self.len()).field("clock", &self.clock).finish()
    }
}

impl Store for MemoryStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        Answer::Ready(Ok(match check.charges() {
            [charge] if charge.policy.ban().is_none() => self.judge_one(charge),
            charges => self.judge(charges),
        }))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let mut found = false;
        for policy in std::iter::once(policy).chain(policy.ban()) {
            let place = self.place(key, policy);
            let mut shard = lock(&self.table.shards[place.shard]);
            if let Some(index) = shard.find(key, policy, place.hash)
                && let Some((slot, state)) = shard.entries.swap_remove_index(index)
            {
                found |= state.idle_at(&slot.policy) > self.now_us();
            }
        }
        Answer::Ready(Ok(found))
    }
}

struct Shard {
    entries: IndexMap<Slot, State>,
    capacity: usize,
    /// New entries since the last sweep, …
    added: usize,
    /// … and where the next one begins.
    hand: usize,
}

/// What identifies a count: the subject, the policy's name, and what makes counts incompatible.
struct Slot {
    key: Key,
    policy: Policy,
}

impl Slot {
    #[inline]
    fn is(&self, key: &Key, policy: &Policy) -> bool {
        self.policy.counts_with(policy) && self.key == *key
    }
}

impl Shard {
    fn find(&self, key: &Key, policy: &Policy, hash: u64) -> Option<usize> {
        self.entries.raw_entry_v1().index_from_hash(hash, |slot| slot.is(key, policy))
    }

    /// Both steps at once, for a check of one charge.
    fn judge(&mut self, charge: &Charge, hash: u64, now: u64) -> Outcome {
        let Charge { key, policy, cost } = charge;
        match self.find(key, policy, hash) {
            Some(index) => self.entries[index].judge(policy, now, *cost),
            None => {
                let mut state = State::new(policy);
                let outcome = state.judge(policy, now, *cost);
                self.keep(key, policy, hash, state, now);
                outcome
            }
        }
    }

    fn evaluate(&self, counted: &mut Counted<'_>, now: u64) {
        let Count { policy, cost } = counted.count;
        counted.index = self.find(counted.key, policy, counted.place.hash);
        counted.fits = match counted.index {
            Some(index) => self.entries[index].evaluate(policy, now, cost),
            None => State::new(policy).evaluate(policy, now, cost),
        };
    }

    fn commit(&mut self, counted: &Counted<'_>, now: u64, pays: Pays) -> Outcome {
        let &Counted { key, count: Count { policy, cost }, ref place, index, fits } = counted;
        if let Some(index) = index {
            return self.entries[index].commit(policy, now, cost, fits, pays);
        }
        let mut state = State::new(policy);
        let outcome = state.commit(policy, now, cost, fits, pays);
        self.keep(key, policy, place.hash, state, now);
        outcome
    }

    /// Step two for a count of denials.
    fn deny(&mut self, counted: &Counted<'_>, now: u64, denied: bool) -> Outcome {
        let &Counted { key, count: Count { policy, cost }, ref place, fits, .. } = counted;
        let pays = denied && fits && cost > 0;
        let outcome = self.commit(counted, now, Pays::of(pays));
        match self.find(key, policy, place.hash) {
            // The last one: the ban lasts from now on.
            Some(index) if pays && outcome.available == 0 => {
                self.entries[index].commit(policy, now, policy.limit(), false, Pays::Admitted)
            }
            _ => outcome,
        }
    }

    /// Keeps the state of a charge that had none, unless a peek or a denial left no trace in it.
    fn keep(&mut self, key: &Key, policy: &Policy, hash: u64, state: State, now: u64) {
        if state.idle_at(policy) > now
            && let RawEntryMut::Vacant(vacant) =
                self.entries.raw_entry_mut_v1().from_hash(hash, |slot| slot.is(key, policy))
        {
            let slot = Slot { key: key.clone(), policy: policy.clone() };
            vacant.insert_hashed_nocheck(hash, slot, state);
            self.added += 1;
        }
    }

    /// For every entry that was added, drops idle ones near the hand and, if there are too many still, the one among
    /// them that becomes idle soonest.
    fn make_room(&mut self, now: u64) {
        for _ in 0..mem::take(&mut self.added) {
            let mut soonest: Option<(usize, u64)> = None;
            for _ in 0..SWEEP.min(self.entries.len()) {
                if self.hand >= self.entries.len() {
                    self.hand = 0;
                }
                let idle_at = self.entries.get_index(self.hand).map_or(0, |(slot, state)| state.idle_at(&slot.policy));
                if idle_at <= now {
                    self.entries.swap_remove_index(self.hand);
                    soonest = None;
                    continue;
                }
                if soonest.is_none_or(|(_, other)| idle_at < other) {
                    soonest = Some((self.hand, idle_at));
                }
                self.hand += 1;
            }
            if self.entries.len() > self.capacity {
                let victim = soonest.map_or(0, |(index, _)| index);
                self.entries.swap_remove_index(victim);
            }
        }
    }
}

/// A panic under the lock cannot leave a count half changed, so a poisoned lock is as good as any.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
