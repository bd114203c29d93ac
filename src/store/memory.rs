//! The embedded store: counts in the process, no server.

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use indexmap::{Equivalent, IndexMap};
use smallvec::SmallVec;

use super::{Answer, Source, Store, Verdict};
use crate::{
    algorithm::State,
    check::{Charge, Check},
    clock::{Clock, SystemClock},
    error::{ConfigError, Error},
    key::Key,
    policy::{Algorithm, Policy},
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

/// More shards than cores would contend for, few enough that small capacities still spread.
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

    /// Creates a store with room for `keys` keys (a client under one policy is one), rounded up to whole shards.
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
        let shards = SHARDS.min(keys);
        let capacity = keys.div_ceil(shards);
        let shard = || Mutex::new(Shard { entries: IndexMap::default(), capacity, hand: 0 });
        let table = Table { shards: (0..shards).map(|_| shard()).collect(), hasher: RandomState::new() };
        Self { table: Arc::new(table), clock: Arc::new(SystemClock) }
    }

    fn shard_of(&self, key: &Key) -> usize {
        // A subject's policies share a shard, so that the common check takes one lock.
        let hash = self.table.hasher.hash_one(key);
        usize::try_from(hash % self.table.shards.len() as u64).unwrap_or(0)
    }

    fn judge(&self, check: &Check) -> Verdict {
        let charges = check.charges();
        let shards: SmallVec<[usize; 2]> = charges.iter().map(|charge| self.shard_of(&charge.key)).collect();
        // Locks are taken in one order everywhere, so that two checks never wait for each other.
        let mut order = shards.clone();
        order.sort_unstable();
        order.dedup();
        let mut guards: SmallVec<[MutexGuard<'_, Shard>; 2]> =
            order.iter().map(|&shard| lock(&self.table.shards[shard])).collect();
        let guard_of = |shard: usize| order.partition_point(|&other| other < shard);
        // Read under the locks: nobody who judged before us used a later time.
        let now = self.clock.now_us();

        let mut fits: SmallVec<[bool; 2]> = SmallVec::new();
        for (charge, &shard) in charges.iter().zip(&shards) {
            fits.push(guards[guard_of(shard)].evaluate(charge, now));
        }
        let allowed = fits.iter().all(|&fits| fits);
        let outcomes = charges
            .iter()
            .zip(&shards)
            .zip(fits)
            .map(|((charge, &shard), fits)| guards[guard_of(shard)].commit(charge, now, fits, allowed))
            .collect();
        Verdict { allowed, source: Source::Store, time_us: now, outcomes }
    }
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
        Answer::Ready(Ok(self.judge(check)))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<()> {
        let mut shard = lock(&self.table.shards[self.shard_of(key)]);
        shard.entries.swap_remove(&Wanted { key, policy });
        Answer::Ready(Ok::<(), Error>(()))
    }
}

struct Shard {
    entries: IndexMap<Slot, Entry>,
    capacity: usize,
    /// Where the next sweep for idle keys begins.
    hand: usize,
}

struct Entry {
    state: State,
    idle_at: u64,
}

impl Shard {
    fn evaluate(&self, charge: &Charge, now: u64) -> bool {
        let Charge { key, policy, cost } = charge;
        match self.entries.get(&Wanted { key, policy }) {
            Some(entry) => entry.state.evaluate(policy, now, *cost),
            None => State::new(policy).evaluate(policy, now, *cost),
        }
    }

    fn commit(&mut self, charge: &Charge, now: u64, fits: bool, allowed: bool) -> super::Outcome {
        let Charge { key, policy, cost } = charge;
        if let Some(entry) = self.entries.get_mut(&Wanted { key, policy }) {
            let outcome = entry.state.commit(policy, now, *cost, fits, allowed);
            entry.idle_at = entry.state.idle_at(policy);
            return outcome;
        }
        let mut state = State::new(policy);
        let outcome = state.commit(policy, now, *cost, fits, allowed);
        let idle_at = state.idle_at(policy);
        // A peek or a denial leaves no trace.
        if idle_at > now {
            self.make_room(now);
            self.entries.insert(Slot::new(key, policy), Entry { state, idle_at });
        }
        outcome
    }

    /// Drops idle keys near the hand and, if the shard is still full, the one that becomes idle soonest.
    fn make_room(&mut self, now: u64) {
        let mut soonest: Option<(usize, u64)> = None;
        for _ in 0..SWEEP.min(self.entries.len()) {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            let idle_at = self.entries[self.hand].idle_at;
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
        if self.entries.len() >= self.capacity {
            let victim = soonest.map_or(0, |(index, _)| index);
            self.entries.swap_remove_index(victim);
        }
    }
}

/// What identifies a count: the subject, the policy's name, and what makes counts incompatible.
#[derive(Eq, PartialEq)]
struct Slot {
    key: Key,
    policy: Box<str>,
    form: (Algorithm, u64),
}

impl Slot {
    fn new(key: &Key, policy: &Policy) -> Self {
        Self { key: key.clone(), policy: policy.name().into(), form: policy.form() }
    }
}

impl Hash for Slot {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.key, &*self.policy, self.form).hash(state);
    }
}

/// A [`Slot`] to look up without building one.
struct Wanted<'a> {
    key: &'a Key,
    policy: &'a Policy,
}

impl Hash for Wanted<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.key, self.policy.name(), self.policy.form()).hash(state);
    }
}

impl Equivalent<Slot> for Wanted<'_> {
    fn equivalent(&self, slot: &Slot) -> bool {
        *self.key == slot.key && self.policy.name() == &*slot.policy && self.policy.form() == slot.form
    }
}

/// A panic under the lock cannot leave a count half changed, so a poisoned lock is as good as any.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
