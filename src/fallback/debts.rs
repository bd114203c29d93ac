//! Debts: units that the fallback has admitted and the store has yet to be charged; and counts of which the store may
//! lack units that this instance has admitted, because their checks or debits were sent without a reply.
//!
//! They are not sent again. This instance has counted them, so until they have left its window, its checks need room
//! in its own count of the whole limit as well as in the store.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{hash::BuildHasher, time::Duration};

use tokio::time::Instant;

use crate::fallback::domain_debts::{Debt, DomainDebts};
use crate::key::Key;
use crate::policy::{Algorithm, Policy};
use crate::runtime::random::{FastState, RandomMap};

/// The debts of one limiter, merged by key and policy.
pub(crate) struct Debts {
    /// The longest time of one batch of debits.
    batch_time: Duration,
    /// Whether the table has debts, so that a limiter without debts takes no lock.
    any: AtomicBool,
    table: Mutex<DebtTable>,
    /// The counts of which the store may lack units.
    pub(super) unsure: Unsure,
}

#[derive(Default)]
struct DebtTable {
    /// The debts by failure domain, because one domain may be down while another one is back.
    domains: RandomMap<usize, DomainDebts>,
    /// A settlement is in progress until this time. After this time another settlement may start, because the runtime
    /// of the first one may have stopped.
    settling_until: Option<Instant>,
}

/// Largest number of debts, about 2 MB. A debt is one key under one policy. Further debts are dropped.
const MAX_DEBTS: usize = 10_000;
/// Largest number of debits in flight: one batch.
const MAX_IN_FLIGHT: usize = 128;
/// Time between two settlements with a failing domain. A batch of debits has at least this time.
const PAUSE: Duration = Duration::from_secs(1);
/// The calls of one debit, one after the other: a peek, a debit that does not fit, one that does, and one more if units
/// came back meanwhile. Under a policy with shards, those of one shard.
const CALLS_PER_DEBIT: u32 = 4;
/// A longer deadline of the store does not keep another runtime from settling the other debts.
const LONGEST_DEADLINE: Duration = Duration::from_secs(3_600);

impl Debts {
    /// Debts to a store with this deadline.
    pub(super) fn new(deadline: Duration) -> Self {
        let batch_time = PAUSE.max(deadline.min(LONGEST_DEADLINE) * CALLS_PER_DEBIT);
        Self { batch_time, any: AtomicBool::new(false), table: Mutex::default(), unsure: Unsure::default() }
    }

    /// Adds debts, up to the cap.
    pub(super) fn add(&self, debts: Vec<Debt>) {
        self.change(|table| {
            let mut room = MAX_DEBTS.saturating_sub(table.entries());
            for debt in debts {
                let domain = table.domains.entry(debt.domain).or_default();
                room -= usize::from(domain.add(debt, room > 0));
            }
        });
    }

    /// Whether the store lacks units that this instance has admitted, or may lack them.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire) || self.unsure.any()
    }

    /// Whether the store may lack units of `key` that will not be charged, because they were sent and it is unknown
    /// whether they have arrived.
    pub(crate) fn is_unsure(&self, key: &Key, policy: &Policy) -> bool {
        self.unsure.has(key, policy)
    }

    /// Whether the store has yet to be charged for units of `key` under a policy that shares its count with `policy`.
    pub(crate) fn owe(&self, domain: impl FnOnce() -> usize, key: &Key, policy: &Policy) -> bool {
        self.any.load(Ordering::Acquire)
            && self.lock().domains.get(&domain()).is_some_and(|domain| domain.has(key, policy))
    }

    /// Takes units off the debt of a key, because the store has charged as many for a request that was denied.
    pub(super) fn pay(&self, domain: usize, key: &Key, policy: &Policy, units: u64) {
        self.change(|table| {
            if let Some(domain) = table.domains.get_mut(&domain) {
                domain.pay(key, policy, units);
            }
        });
    }

    /// Forgets the debts of a key under all policies that share their count with `policy`.
    pub(super) fn forget(&self, domain: usize, key: &Key, policy: &Policy) {
        self.unsure.forget(key, policy);
        self.change(|table| {
            if let Some(domain) = table.domains.get_mut(&domain) {
                domain.forget(key, policy);
            }
        });
    }

    /// Whether a settlement is due. Of several callers at the same time, only one gets `true`.
    pub(super) fn start_settlement(&self) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        self.change(|table| {
            let now = Instant::now();
            if table.settling_until.is_some_and(|until| until <= now) {
                // Debits in flight when their runtime stopped have an unknown fate and are not sent again.
                let note = |key: &Key, policy: &Policy| self.unsure.note(key, policy);
                table.domains.values_mut().for_each(|domain| domain.forget_sent(note));
                table.settling_until = None;
            }
            let is_due = table.settling_until.is_none() && table.domains.values().any(|domain| domain.is_due(now));
            if is_due {
                table.settling_until = Some(now + self.batch_time);
            }
            is_due
        })
    }

    /// Takes one batch: the debts of all domains in `answering`, and of each other domain the debts of one key, because
    /// the domain may still be down.
    pub(super) fn take_batch(&self, answering: &HashSet<usize>) -> Vec<Debt> {
        let mut taken = Vec::new();
        self.change(|table| {
            let now = Instant::now();
            for (&number, domain) in table.domains.iter_mut().filter(|(_, domain)| domain.is_due(now)) {
                let full = if answering.contains(&number) { MAX_IN_FLIGHT } else { MAX_IN_FLIGHT.min(taken.len() + 1) };
                while taken.len() < full && domain.take_key(number, now, &mut taken) {}
            }
            table.settling_until = Some(now + self.batch_time);
        });
        taken
    }

    /// Notes what has become of a debt that was taken. `rest` was not charged, and is a debt again from `due` on; at
    /// once, if it is not set and the domain does not pause.
    pub(super) fn settled(&self, debt: &Debt, rest: u64, due: Option<Instant>) {
        self.change(|table| table.domains.entry(debt.domain).or_default().settled(debt, rest, due));
    }

    /// Defers the next settlement with domains that have failed.
    pub(super) fn pause(&self, failed: &HashSet<usize>) {
        let until = Instant::now() + PAUSE;
        let mut table = self.lock();
        for (_, domain) in table.domains.iter_mut().filter(|(number, _)| failed.contains(number)) {
            domain.pause(until);
        }
    }

    /// Gives the settlement the time of one more debit: one has been answered.
    pub(crate) fn go_on(&self) {
        if let Some(until) = &mut self.lock().settling_until {
            *until = (*until).max(Instant::now() + self.batch_time);
        }
    }

    /// Ends the settlement, so that the next debt may start another settlement at once.
    pub(super) fn end_settlement(&self) {
        self.lock().settling_until = None;
    }

    fn change<T>(&self, change: impl FnOnce(&mut DebtTable) -> T) -> T {
        let mut table = self.lock();
        let result = change(&mut table);
        table.domains.retain(|_, domain| !domain.is_empty());
        self.any.store(!table.domains.is_empty(), Ordering::Release);
        result
    }

    fn lock(&self) -> MutexGuard<'_, DebtTable> {
        // A panic under the lock leaves each debt whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DebtTable {
    fn entries(&self) -> usize {
        self.domains.values().map(DomainDebts::entries).sum()
    }
}

/// The counts of one limiter.
#[derive(Default)]
pub(super) struct Unsure {
    counts: Mutex<Counts>,
    /// The number of counts, so that a process without any takes no lock.
    number: AtomicUsize,
    hasher: FastState,
}

#[derive(Default)]
struct Counts {
    /// When the last such units of a count have left their window, by the hash of its key and policy. Two counts of
    /// one hash are taken for one: an instance that has spent a whole limit by itself is denied rightly in any case.
    until: HashMap<u64, Instant, FastState>,
    /// When the counts that have ended are looked for next.
    next_sweep: Option<Instant>,
}

/// The most counts, less than 1 MB. One more takes the place of the one that ends first.
const MOST: usize = 10_000;
/// Time between two sweeps. A sweep of all counts takes less than a millisecond.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

impl Counts {
    /// Removes the counts that have ended, at most once a second: their keys may never come again.
    fn sweep(&mut self, now: Instant) {
        if self.next_sweep.is_none_or(|next| next <= now) {
            self.until.retain(|_, until| now < *until);
            self.next_sweep = Some(now + SWEEP_PAUSE);
        }
    }
}

impl Unsure {
    /// Notes that the store may lack units of a count that were admitted just now.
    pub(super) fn note(&self, key: &Key, policy: &Policy) {
        let ttl = policy.holds().map_or_else(Default::default, |holds| holds.ttl());
        let now = Instant::now();
        // A time that cannot be represented never comes.
        let Some(until) = now.checked_add(ttl.saturating_add(longest_memory(policy))) else { return };
        let mut counts = self.lock();
        counts.sweep(now);
        let hash = self.hash(key, policy);
        if counts.until.len() >= MOST && !counts.until.contains_key(&hash) {
            let first = counts.until.iter().min_by_key(|(_, until)| **until).map(|(hash, _)| *hash);
            first.and_then(|first| counts.until.remove(&first));
        }
        let noted = counts.until.entry(hash).or_insert(until);
        *noted = until.max(*noted);
        self.number.store(counts.until.len(), Ordering::Release);
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.number.load(Ordering::Acquire) > 0
    }

    /// Whether the store may lack units of this count.
    pub(super) fn has(&self, key: &Key, policy: &Policy) -> bool {
        if !self.any() {
            return false;
        }
        let hash = self.hash(key, policy);
        let now = Instant::now();
        let mut counts = self.lock();
        counts.sweep(now);
        self.number.store(counts.until.len(), Ordering::Release);
        counts.until.get(&hash).is_some_and(|until| now < *until)
    }

    /// Forgets a count that was reset.
    pub(super) fn forget(&self, key: &Key, policy: &Policy) {
        let mut counts = self.lock();
        counts.until.remove(&self.hash(key, policy));
        self.number.store(counts.until.len(), Ordering::Release);
    }

    fn hash(&self, key: &Key, policy: &Policy) -> u64 {
        self.hasher.hash_one(key) ^ policy.name_hash().rotate_left(32)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Each change is one step, so a poisoned lock is usable.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest time from a charge until its count has forgotten it.
fn longest_memory(policy: &Policy) -> Duration {
    let windows = match policy.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingWindowLog => 1,
        // The window before counts in part.
        Algorithm::SlidingWindowCounter => 2,
        // As long as an empty bucket fills.
        Algorithm::TokenBucket => policy.capacity().div_ceil(policy.limit()),
    };
    Duration::from_micros(policy.window_us().saturating_mul(windows))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn policy() -> Policy {
        Policy::new("api", 100, WINDOW).expect("the policy is valid")
    }

    fn debt(key: &str) -> Debt {
        Debt { domain: 0, key: Key::new(key), policy: policy(), cost: 1, kept: 0 }
    }

    #[test]
    fn the_debts_of_one_check_are_kept_up_to_the_cap() {
        let debts = Debts::new(Duration::ZERO);
        debts.add((0..MAX_DEBTS + 2).map(|number| debt(&number.to_string())).collect());
        assert_eq!(debts.lock().entries(), MAX_DEBTS);
    }

    #[test]
    fn a_reset_forgets_what_the_store_lacks_of_its_key_alone() {
        let (debts, policy, keys) = (Debts::new(Duration::ZERO), policy(), [Key::new("a"), Key::new("b")]);
        debts.add(vec![debt("a"), debt("b")]);
        keys.iter().for_each(|key| debts.unsure.note(key, &policy));
        for (reset, is_left) in [(0, true), (1, false)] {
            debts.forget(0, &keys[reset], &policy);
            let lacks = |key: &Key| [debts.owe(|| 0, key, &policy), debts.is_unsure(key, &policy)];
            assert_eq!((lacks(&keys[0]), lacks(&keys[1])), ([false; 2], [is_left; 2]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn counts_whose_keys_never_come_again_are_forgotten_after_their_window() {
        let (unsure, policy) = (Unsure::default(), policy());
        for number in 0..1_000 {
            unsure.note(&Key::new(number.to_string()), &policy);
        }
        tokio::time::advance(WINDOW - SWEEP_PAUSE).await;
        unsure.note(&Key::new("late"), &policy);
        assert!(unsure.has(&Key::new("0"), &policy));
        tokio::time::advance(SWEEP_PAUSE).await;
        assert!(!unsure.has(&Key::new("other"), &policy) && unsure.any());
        assert_eq!(unsure.lock().until.len(), 1);
        tokio::time::advance(WINDOW).await;
        assert!(!unsure.has(&Key::new("other"), &policy) && !unsure.any(), "checks take no lock any more");
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_full_table_a_count_takes_the_place_of_the_one_that_ends_first() {
        let (unsure, policy) = (Unsure::default(), policy());
        unsure.note(&Key::new("first"), &policy);
        tokio::time::advance(Duration::from_millis(1)).await;
        for number in 0..MOST {
            unsure.note(&Key::new(number.to_string()), &policy);
        }
        assert!(!unsure.has(&Key::new("first"), &policy) && unsure.has(&Key::new("0"), &policy));
        assert_eq!(unsure.lock().until.len(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_settlement_is_taken_for_lost_when_nothing_was_answered_for_its_time() {
        let debts = Debts::new(Duration::ZERO);
        debts.add(vec![debt("sent")]);
        assert!(debts.start_settlement() && !debts.start_settlement(), "one at a time");
        let [Debt { key, policy, .. }] = &debts.take_batch(&HashSet::new())[..] else { panic!("one debt") };
        debts.add(vec![debt("due")]);
        for _ in 0..3 {
            tokio::time::advance(PAUSE * 3 / 4).await;
            assert!(!debts.start_settlement(), "a debit was answered since");
            debts.go_on();
        }
        tokio::time::advance(PAUSE).await;
        assert!(debts.start_settlement() && debts.is_unsure(key, policy) && !debts.owe(|| 0, key, policy));
    }
}
