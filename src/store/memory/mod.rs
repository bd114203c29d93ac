//! The embedded store: counts in the process, no server.

mod full;
mod judge;
mod shard;

use std::{
    fmt,
    hash::BuildHasher,
    sync::{Arc, Mutex},
};

use foldhash::fast::RandomState;

pub use self::full::WhenFull;
use self::{
    full::Fullness,
    shard::{Shard, lock},
};
use super::{Answer, Store, Verdict};
use crate::{
    check::Check,
    clock::{Clock, SystemClock},
    error::ConfigError,
    key::Key,
    observe::Observer,
    policy::Policy,
};

/// Counts in this process: the default, for one instance, for tests and for development.
///
/// Clones share their counts. There is no background thread and nothing to call: idle keys are dropped a few at a
/// time whenever a new key comes in.
///
/// # Bounded memory
///
/// At most [`DEFAULT_CAPACITY`](Self::DEFAULT_CAPACITY) keys are kept, see [`with_capacity`](Self::with_capacity). When
/// the store is full, a new key takes the place of an idle one: its window has passed, so nothing is lost. Where none
/// is found nearby, [`when_full`](Self::when_full) says what a new key gets. By default a live count makes room, and
/// its client starts afresh: of a few that are looked at, the one that has spent the smallest share of its limit. So a
/// flood of made-up keys drops its own counts first. Observers get a [warning](crate::observe::Warning::StoreFull) once
/// and an [event](crate::observe::Observer::on_evicted) for each live count that is dropped; [`evicted`](Self::evicted)
/// counts them.
///
/// Give the store room for the clients of one window. A key under one policy takes about 150 bytes; under the sliding
/// window log 220 with one request in the window, 290 with five and 1 200 with sixty. That is resident memory on 64-bit
/// Linux, measured with 100 000 addresses. Keys of more than 38 bytes take their length in addition, and the denials
/// that may lead to a ban are one more log.
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
    fullness: Fullness,
}

/// More than cores contend for.
const SHARDS: usize = 64;

impl MemoryStore {
    /// The default capacity, 100 000 keys: about 30 MB when clients send five requests each.
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

    /// Sets what a new key gets while all places are taken by live counts. Defaults to [`WhenFull::EvictLeastSpent`].
    ///
    /// Clones share the setting, as they share their counts: it holds for all of them from here on, also for those that
    /// exist already. Where it is set more than once, the last setting holds.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, store::WhenFull};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let store = MemoryStore::with_capacity(1_000_000)?.when_full(WhenFull::ShareOneBucket);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn when_full(self, when_full: WhenFull) -> Self {
        self.table.fullness.set_when_full(when_full);
        self
    }

    /// How many live counts were dropped so far to make room for new keys. Their clients started afresh.
    ///
    /// Above 0, the store is too small for its clients, or a client makes keys up; see
    /// [bounded memory](Self#bounded-memory).
    pub fn evicted(&self) -> u64 {
        self.table.fullness.evicted()
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
        let shards = (0..shards).map(|_| Mutex::new(Shard::new(capacity))).collect();
        let table = Table { shards, hasher: RandomState::default(), fullness: Fullness::new(keys) };
        Self { table: Arc::new(table), clock: Arc::new(SystemClock) }
    }

    /// Far beyond any date, so that no sum of times overflows.
    fn now_us(&self) -> u64 {
        self.clock.now_us().min(1 << 53)
    }

    /// A subject's policies share a shard, so that the common check takes one lock.
    fn place(&self, key: &Key, policy: &Policy) -> Place {
        let subject = self.table.hasher.hash_one(key);
        // 32 bits as a fraction of the shards, which needs no division: the middle ones, because a shard's table goes by
        // the first and the last.
        let fraction = (subject >> 16) & u64::from(u32::MAX);
        let shard = usize::try_from((fraction * self.table.shards.len() as u64) >> 32).unwrap_or(0);
        // The subject's hash has a random seed, so no client can choose keys that collide.
        Place { shard, hash: subject ^ policy.name_hash().rotate_left(32) }
    }
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
        f.debug_struct("MemoryStore")
            .field("len", &self.len())
            .field("clock", &self.clock)
            .field("when_full", &self.table.fullness.when_full())
            .finish()
    }
}

impl Store for MemoryStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        Answer::Ready(Ok(match check.charges() {
            [charge] if charge.policy.ban().is_none() => self.judge_one(charge, true),
            charges => self.judge(charges, true),
        }))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let mut found = false;
        for policy in std::iter::once(policy).chain(policy.ban()) {
            let place = self.place(key, policy);
            let mut shard = lock(&self.table.shards[place.shard]);
            found |= shard.remove(key, policy, place.hash, self.now_us());
        }
        Answer::Ready(Ok(found))
    }

    /// Reports the live counts that are dropped, and warns when the store is full for the first time.
    fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.table.fullness.set_observer(observer);
    }
}
