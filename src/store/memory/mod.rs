//! The embedded store: counts in the process, without a server.
//!
//! This file has the public type, `table` the shards and what a full store does, `judge` the judgement of a check,
//! `counted` its two steps for one count, `changes` what is no check, `hold_counts` a count with its bans,
//! `open_holds` its holds, `shard` the counts under one lock, `entries` their list and index.

mod changes;
mod counted;
mod entries;
mod hold_counts;
mod judge;
mod open_holds;
mod shard;
mod table;

use std::{fmt, iter, slice, sync::Arc};

use self::{judge::Judging, shard::lock, table::Table};
use crate::check::{Charge, Check};
use crate::clock::{Clock, SystemClock};
use crate::hold::{HoldChange, HoldId, SettleAnswer};
use crate::store::contract::{Answer, Store};
use crate::{
    error::ConfigError, key::Key, observe::Observer, policy::Policy, store::ban::CountChange, verdict::Verdict,
};

pub use self::table::WhenFull;

/// A store that counts in this process: for one instance, for tests and for development.
///
/// Clones share their counts. The store has no background task and needs no maintenance call: whenever a new key is
/// added, a few idle counts are dropped. A token bucket may be full again within microseconds. It is kept longer, for
/// the time that fills an empty bucket, so that a key in steady use need not be added again for each check.
///
/// The store answers at once, so [`Limiter::try_check`](crate::Limiter::try_check) works on it without a runtime.
///
/// # Bounded memory
///
/// The store keeps at most 100 000 keys, or as many as [`with_capacity`](Self::with_capacity) says. When it is full, a
/// new key takes the place of an idle one, whose window has passed, so nothing is lost. If no idle key is found nearby,
/// [`when_full`](Self::when_full) decides what the new key gets. By default the new key replaces a live count, and the
/// client of that count starts with a fresh budget. The store inspects a few counts at random places, and drops the one
/// that has spent the smallest share of its limit. A flood of made-up keys therefore drops its own counts first.
/// Observers get a [warning](crate::observe::Warning) once, and the [event](crate::observe::Event) `eviction` for each
/// live count that is dropped. [`evicted`](Self::evicted) returns the number of these counts.
///
/// Give the store room for the clients of one window. A key under one policy takes about 150 bytes, also under the
/// sliding window log with one request in the window; 190 bytes with five requests and 750 with sixty. Requests that
/// are spread over more than 71 minutes, or that cost more than 2^32 units together, take up to twice as much each.
/// These figures are resident memory on 64-bit Linux, measured with 100 000 addresses. Keys of more than 38 bytes take
/// their length in addition. Under a policy with a [ban](crate::Policy::ban_after), the count of denials takes the
/// memory of one more log. A count with open [holds](crate::Limiter::hold) is live until they have ended and what they
/// have charged has left; if it is dropped, its holds are dropped too.
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

impl MemoryStore {
    const DEFAULT_CAPACITY: usize = 100_000;

    /// Creates a store with room for 100 000 keys: about 19 MB when clients send five requests each.
    pub fn new() -> Self {
        Self::build(Self::DEFAULT_CAPACITY)
    }

    /// Creates a store with room for `keys` keys, and up to an eighth more. A client under one policy is one key.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `keys` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::MemoryStore;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let store = MemoryStore::with_capacity(1_000_000)?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_capacity(keys: usize) -> Result<Self, ConfigError> {
        if keys == 0 {
            return Err(ConfigError::new("a memory store with room for 0 keys can count nothing; use at least 1"));
        }
        Ok(Self::build(keys))
    }

    /// Sets the clock. Defaults to [`SystemClock`]. Set it before the store is cloned: earlier clones keep their clock,
    /// and would judge the same counts by it.
    ///
    /// # Examples
    ///
    /// See [`clock`](crate::clock).
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets what a new key gets while the store is full of live counts. Defaults to [`WhenFull::EvictLeastSpent`].
    ///
    /// Clones share the setting as they share their counts: it applies to all of them, also to existing ones. The last
    /// setting holds.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, store::WhenFull};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let store =
    ///     MemoryStore::with_capacity(1_000_000)?.when_full(WhenFull::ShareOneKey);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn when_full(self, when_full: WhenFull) -> Self {
        self.table.fullness.set_when_full(when_full);
        self
    }

    /// Number of live counts that were dropped so far to make room for new keys. Their clients started anew.
    ///
    /// Above 0, the store is too small for its clients, or a client makes up keys; see
    /// [bounded memory](Self#bounded-memory).
    pub fn evicted(&self) -> u64 {
        self.table.fullness.evicted()
    }

    /// Number of keys in the store, one for each client and policy. It includes keys whose count is over: new keys drop
    /// them, a few at a time. So it is not the number of active clients.
    pub fn keys(&self) -> usize {
        self.table.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// Forgets everything: the counts, bans and open holds of all keys under all policies. For one key, call
    /// [`Limiter::reset`](crate::Limiter::reset).
    ///
    /// The next check of each key has a full budget. A check that runs meanwhile is counted before or after, as a
    /// whole. Work for which units are held goes on, so more than a concurrency limit may run for a while. Waiters of
    /// [`Limiter::acquire`](crate::Limiter::acquire) ask again when they would have without this call.
    /// [`evicted`](Self::evicted) and all settings stay.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let limiter = Limiter::new(store.clone());
    /// let policy = Policy::per_minute("emails", 1)?;
    /// assert!(limiter.check("user:17", &policy, 1).await?.is_allowed());
    /// store.clear();
    /// assert!(limiter.check("user:17", &policy, 1).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "reset_all")]
    pub fn clear(&self) {
        self.table.clear();
    }

    fn build(keys: usize) -> Self {
        Self { table: Arc::new(Table::new(keys)), clock: Arc::new(SystemClock) }
    }

    /// Charges the key's own count. If the store is full and drops nothing, a new key is not counted, not even in the
    /// bucket that new keys share.
    pub(crate) fn charge_own_count(&self, charge: &Charge) {
        self.table.judge_one(charge, false, &*self.clock);
    }

    /// Holds units in the key's own count, whether or not they fit. If the store is full and drops nothing, units of a
    /// new key are not held.
    pub(crate) fn hold_own_count(&self, key: &Key, policy: &Policy, id: HoldId, units: u64) {
        self.table.hold_anyway(key, policy, id, units, &*self.clock);
    }

    /// The units that a key has spent by its own count; 0 without a count.
    pub(crate) fn spent(&self, key: &Key, policy: &Policy) -> u64 {
        self.table.spent(key, policy, &*self.clock)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("keys", &self.keys())
            .field("clock", &self.clock)
            .field("when_full", &self.table.fullness.when_full())
            .finish()
    }
}

impl Store for MemoryStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        if let Err(mistake) = check.validate() {
            return Answer::Ready(Err(mistake.into()));
        }
        match check.charges() {
            [charge] if charge.policy.ban().is_none() && charge.hold.is_none() => {
                Answer::Ready(Ok(self.table.judge_one(charge, true, &*self.clock)))
            }
            charges => Answer::Ready(Ok(self.table.judge(charges, true, &*self.clock))),
        }
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let policies = iter::once(policy).chain(policy.ban());
        Answer::Ready(Ok(policies.fold(false, |found, policy| self.table.remove(key, policy, &*self.clock) | found)))
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn has_alternatives(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        Answer::Ready(Ok(self.table.change_hold(hold, change, &*self.clock)))
    }

    fn peek(&self, check: &Check) -> Answer<Verdict> {
        if let Err(mistake) = check.validate() {
            return Answer::Ready(Err(mistake.into()));
        }
        Answer::Ready(Ok(self.table.judge_as(Judging::Peek, check.charges(), true, &*self.clock).0))
    }

    fn charge_up_to(&self, charge: &Charge) -> Answer<(Verdict, u64)> {
        // A denial of more than the capacity would not be counted.
        let charge = Charge { cost: charge.cost.min(charge.policy.capacity()), ..charge.clone() };
        Answer::Ready(Ok(self.table.judge_as(Judging::UpTo, slice::from_ref(&charge), true, &*self.clock)))
    }

    fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Answer<u64> {
        if let Err(mistake) = policy.refuse_change_if_blocked() {
            return Answer::Ready(Err(mistake.into()));
        }
        let changed = self.table.change_count(key, policy, change, &*self.clock);
        let Some(ban) = policy.ban().filter(|_| change == CountChange::Unban) else { return Answer::Ready(changed) };
        // The count of denials is full during a ban. Without it, the denials are counted anew.
        let was_banned = self.table.spent(key, ban, &*self.clock) >= ban.limit();
        self.table.remove(key, ban, &*self.clock);
        Answer::Ready(changed.map(|changed| changed.max(was_banned.into())))
    }

    /// Sets the observer of live counts that are dropped. The observer also gets a warning when the store is full for
    /// the first time.
    fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.table.fullness.set_observer(observer);
    }
}
