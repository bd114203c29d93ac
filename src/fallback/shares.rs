//! The local fallback: a share of every limit, counted in the process while the store cannot answer.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use super::debts::{Debt, Debts};
use crate::{
    check::{Charge, Check},
    decision::Decision,
    error::{Error, ErrorKind},
    key::Key,
    observe::Observer,
    policy::{Algorithm, Policy},
    store::{Answer, MemoryStore, Store},
    verdict::{Source, Verdict},
};

/// Counts what this instance admits, and judges by its share when nobody else can.
pub(crate) struct Fallback {
    memory: MemoryStore,
    instances: Instances,
    /// The store that is fallen back from: it knows which part of it has a key.
    store: Arc<dyn Store>,
    /// By [`Policy::name_hash`], for making a policy takes allocations.
    shares: RwLock<HashMap<u64, Share>>,
    pub(super) debts: Debts,
}

/// A policy as it holds for one instance. All but the last count in one place.
#[derive(Clone)]
struct Share {
    instances: u32,
    whole: Policy,
    /// What the fallback judges by.
    part: Policy,
    /// What the store's admissions are counted by: whether they fit was the store's to say, so they always count.
    warm: Policy,
    /// What the fallback itself has admitted is counted by: what leaves its window is not owed any more.
    owed: Policy,
}

/// How many share a limit.
#[derive(Debug)]
pub(crate) enum Instances {
    Given(u32),
    /// By the store, while it was well.
    Learnt(Arc<dyn Store>),
}

impl Instances {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Given(instances) => Some(*instances),
            Self::Learnt(store) => store.instances().filter(|&instances| instances > 0),
        }
    }
}

/// Policies made per request would fill the table; beyond that it starts afresh.
const MOST_SHARES: usize = 1_024;

/// What a cost above the share, but not above the limit, is told: the store may be back by then.
const ABOVE_SHARE_RETRY_AFTER_US: u64 = 1_000_000;

impl Fallback {
    pub(crate) fn new(memory: MemoryStore, instances: Instances, store: Arc<dyn Store>) -> Self {
        Self { memory, instances, store, shares: RwLock::default(), debts: Debts::default() }
    }

    /// Hands on the observer, for what only the memory knows: that it is full.
    pub(crate) fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.memory.set_observer(observer);
    }

    /// Counts what the store has admitted, so that an outage gives nobody a fresh budget.
    pub(crate) fn warm(&self, check: &Check) {
        self.note(check, |share| &share.warm);
    }

    /// Counts a check by that one of its shares, whether it fits or not. Charges only counts of the key's own: a bucket
    /// that keys share would show for each key what the others have spent.
    fn note(&self, check: &Check, by: impl Fn(&Share) -> &Policy) {
        for Charge { key, policy, cost } in check.charges().iter().filter(|charge| charge.cost > 0) {
            let share = self.share(policy);
            let policy = by(&share);
            let cost = *cost.min(&policy.capacity());
            self.memory.note(&Charge { key: key.clone(), policy: policy.clone(), cost });
        }
    }

    /// Whether a share is known.
    pub(crate) fn can_judge(&self) -> bool {
        self.instances.number().is_some()
    }

    /// Judges a check for which the store gave `error`, and remembers what it admits as owed to the store.
    ///
    /// The error stays if nobody knows how large a share is.
    pub(crate) fn judge(&self, check: &Check, error: &Error) -> Result<Decision, Error> {
        if !self.can_judge() {
            return Err(error.clone());
        }
        let mut shares = Check::empty();
        for Charge { key, policy, cost } in check.charges() {
            // Cannot fail: the check has no more charges than a check may have, and no name twice.
            shares.push(key.clone(), self.share(policy).part, *cost)?;
        }
        let mut verdict = self.count(&shares).ok_or_else(|| error.clone())?;
        verdict.source = Source::Local;
        for (charge, outcome) in check.charges().iter().zip(&mut verdict.outcomes) {
            if !outcome.fits && outcome.retry_after_us.is_none() && charge.cost <= charge.policy.capacity() {
                outcome.retry_after_us = Some(ABOVE_SHARE_RETRY_AFTER_US);
            }
        }
        if verdict.allowed && is_owed(error) {
            self.note(check, |share| &share.owed);
            let charged = check.charges().iter().filter(|charge| charge.cost > 0);
            self.debts.add(charged.map(|charge| self.debt(charge)).collect());
        }
        // Of the whole policies: a share tells clients how many instances there are.
        Ok(Decision::new(&mut check.clone(), verdict))
    }

    /// Whether the instance's share has room for `check`, and for `least` units of each policy.
    pub(crate) fn has_room(&self, check: &Check, least: u32) -> bool {
        check.charges().iter().all(|Charge { key, policy, cost }| {
            let peek = self.count(&Check::new(key.clone(), &self.share(policy).part, 0));
            peek.is_some_and(|verdict| verdict.outcomes.iter().all(|outcome| outcome.available >= (*cost).max(least)))
        })
    }

    /// What the fallback has admitted for `key`, as far as it still counts. Nothing if a full memory has no count of
    /// it, so that a debt that may have left its window is not charged.
    pub(super) fn admitted(&self, key: &Key, policy: &Policy) -> u32 {
        self.memory.spent(key, &self.share(policy).owed)
    }

    /// Tells whether there was anything to forget. What is owed is also part of the count.
    pub(crate) fn forget(&self, key: &Key, policy: &Policy) -> bool {
        let found = matches!(self.memory.reset(key, policy), Answer::Ready(Ok(true)));
        drop(self.memory.reset(key, &self.share(policy).owed));
        self.debts.forget(self.store.failure_domain_of(key), key, policy);
        found
    }

    fn debt(&self, Charge { key, policy, cost }: &Charge) -> Debt {
        Debt { part: self.store.failure_domain_of(key), key: key.clone(), policy: policy.clone(), cost: *cost }
    }

    /// The memory store always has its answer at hand.
    fn count(&self, check: &Check) -> Option<Verdict> {
        match self.memory.check(check) {
            Answer::Ready(verdict) => verdict.ok(),
            Answer::Pending(_) => None,
        }
    }

    fn share(&self, policy: &Policy) -> Share {
        // Until it is known nothing is judged by it.
        let instances = self.instances.number().unwrap_or(1);
        let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
        let fitting = |share: &&Share| share.instances == instances && share.whole == *policy;
        if let Some(share) = shares.get(&policy.name_hash()).filter(fitting) {
            return share.clone();
        }
        drop(shares);
        let share = Share::new(policy, instances);
        let mut shares = self.shares.write().unwrap_or_else(PoisonError::into_inner);
        if shares.len() >= MOST_SHARES {
            shares.clear();
        }
        shares.insert(policy.name_hash(), share.clone());
        share
    }
}

impl Share {
    fn new(policy: &Policy, instances: u32) -> Self {
        let part = policy.share(instances);
        let warm = match policy.algorithm() {
            // A bucket keeps times, not units, and they mean something else at another rate.
            Algorithm::TokenBucket => &part,
            Algorithm::FixedWindow | Algorithm::SlidingWindowCounter | Algorithm::SlidingWindowLog => policy,
        };
        let warm = warm.without_ban().with_count_rejected(true);
        Self { instances, whole: policy.clone(), owed: warm.apart("owed"), warm, part }
    }
}

/// Whether what is admitted instead is to be charged later. A check that may have been charged is never sent again, and
/// one that the store will not take does not become better with time.
fn is_owed(error: &Error) -> bool {
    !error.may_have_charged() && !matches!(error.kind(), ErrorKind::BadKey | ErrorKind::Config)
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("memory", &self.memory)
            .field("instances", &self.instances)
            .finish_non_exhaustive()
    }
}
