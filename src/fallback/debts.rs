//! Debts: units that the fallback has admitted and the store has yet to be charged.
//!
//! A debit is the check that charges the store for one debt. A closure makes it, so that this module imports neither
//! the fallback nor the limiter.

use std::{
    collections::HashSet,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use crate::{key::Key, policy::Policy, runtime::random::RandomMap};

/// The debts of one limiter, merged by key and policy.
#[derive(Default)]
pub(crate) struct Debts {
    /// Whether the table has debts, so that a limiter without debts takes no lock.
    any: AtomicBool,
    table: Mutex<DebtTable>,
}

#[derive(Default)]
struct DebtTable {
    /// The debts by failure domain, because one domain may be down while another one is back.
    domains: RandomMap<usize, DomainDebts>,
    entries: usize,
    /// A settlement is in progress until this time. After this time another settlement may start, because the runtime
    /// of the first one may have stopped.
    settling_until: Option<Instant>,
}

#[derive(Default)]
struct DomainDebts {
    by_key: RandomMap<Key, SmallVec<[(Policy, u32); 1]>>,
    /// Earliest time of the next settlement after one has failed.
    not_before: Option<Instant>,
}

/// Units to be charged to a key under a policy.
pub(crate) struct Debt {
    /// The failure domain that has the key.
    pub(crate) domain: usize,
    pub(crate) key: Key,
    pub(crate) policy: Policy,
    pub(crate) cost: u32,
}

/// The result of charging the store for one debt.
pub(crate) enum Settlement {
    /// The store has answered.
    Answered,
    /// The store failed. `retry` is the debt, unless it may have been charged.
    Failed { retry: Option<Debt> },
    /// The debt has left its window, so the store was not asked.
    NotSent,
}

/// Largest number of debts, about 2 MB. A debt is one key under one policy. Further debts are dropped.
const MAX_DEBTS: usize = 10_000;
/// Largest number of debits in flight: one batch.
const MAX_IN_FLIGHT: usize = 128;
/// Time between two settlements with a failing domain, and the longest time of one batch of debits.
const PAUSE: Duration = Duration::from_secs(1);

impl Debts {
    /// Adds debts, up to the cap.
    pub(super) fn add(&self, debts: Vec<Debt>) {
        let mut table = self.lock();
        debts.into_iter().for_each(|debt| table.add(debt));
        self.any.store(table.entries > 0, Ordering::Release);
    }

    /// Forgets the debts of a key under all policies that share their count with `policy`.
    pub(super) fn forget(&self, domain: usize, key: &Key, policy: &Policy) {
        let mut table = self.lock();
        let Some(by_key) = table.domains.get_mut(&domain).map(|domain| &mut domain.by_key) else { return };
        let Some(debts) = by_key.get_mut(key) else { return };
        let before = debts.len();
        debts.retain(|(other, _)| !other.counts_with(policy));
        let gone = before - debts.len();
        if debts.is_empty() {
            by_key.remove(key);
        }
        table.entries -= gone;
    }

    /// Starts a task that charges the store for all debts, if a settlement is due and the caller runs in a tokio
    /// runtime. `charge` makes the closure that charges the store for one debt.
    pub(crate) fn settle_if_due<C, F>(self: &Arc<Self>, charge: impl FnOnce() -> C)
    where
        C: Fn(Debt) -> F + Send + 'static,
        F: Future<Output = Settlement> + Send + 'static,
    {
        if let Ok(runtime) = Handle::try_current()
            && self.start_settlement()
        {
            runtime.spawn(settle_all(Arc::clone(self), charge()));
        }
    }

    /// Whether a settlement is due. Of several callers at the same time, only one gets `true`.
    fn start_settlement(&self) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut table = self.lock();
        let now = Instant::now();
        let is_free = table.settling_until.is_none_or(|until| until <= now);
        let is_due = is_free && table.domains.values().any(|domain| domain.is_due(now));
        if is_due {
            table.settling_until = Some(now + PAUSE);
        }
        is_due
    }

    /// Takes one batch: the debts of all domains in `answering`, and of each other domain the debts of one key, because
    /// the domain may still be down.
    fn take_batch(&self, answering: &HashSet<usize>) -> Vec<Debt> {
        let mut table = self.lock();
        let now = Instant::now();
        let mut taken = Vec::new();
        for (&number, domain) in table.domains.iter_mut().filter(|(_, domain)| domain.is_due(now)) {
            let full = if answering.contains(&number) { MAX_IN_FLIGHT } else { MAX_IN_FLIGHT.min(taken.len() + 1) };
            while taken.len() < full
                && let Some(key) = domain.by_key.keys().next().cloned()
            {
                let debts = domain.by_key.remove(&key).unwrap_or_default();
                let debt = |(policy, cost)| Debt { domain: number, key: key.clone(), policy, cost };
                taken.extend(debts.into_iter().map(debt));
            }
        }
        table.entries -= taken.len();
        table.domains.retain(|_, domain| !domain.by_key.is_empty());
        table.settling_until = Some(now + PAUSE);
        self.any.store(table.entries > 0, Ordering::Release);
        taken
    }

    /// Defers the next settlement with domains that have failed.
    fn pause(&self, failed: &HashSet<usize>) {
        let mut table = self.lock();
        let not_before = Some(Instant::now() + PAUSE);
        for (_, domain) in table.domains.iter_mut().filter(|(number, _)| failed.contains(number)) {
            domain.not_before = not_before;
        }
    }

    /// Ends the settlement, so that the next debt may start another settlement at once.
    fn end_settlement(&self) {
        self.lock().settling_until = None;
    }

    fn lock(&self) -> MutexGuard<'_, DebtTable> {
        // After a panic under the lock, `entries` may be wrong, which only shifts the cap.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DebtTable {
    fn add(&mut self, Debt { domain, key, policy, cost }: Debt) {
        if let Some(domain) = self.domains.get_mut(&domain)
            && let Some(debts) = domain.by_key.get_mut(&key)
            && let Some((_, total)) = debts.iter_mut().find(|(other, _)| *other == policy)
        {
            *total = total.saturating_add(cost);
            return;
        }
        if self.entries < MAX_DEBTS {
            self.domains.entry(domain).or_default().by_key.entry(key).or_default().push((policy, cost));
            self.entries += 1;
        }
    }
}

impl DomainDebts {
    fn is_due(&self, now: Instant) -> bool {
        !self.by_key.is_empty() && self.not_before.is_none_or(|instant| instant <= now)
    }
}

/// Charges the store batch by batch, until no debt is left or the remaining domains pause after a failure. Debts that
/// are still in the table when the task ends are settled by another task. Debts in flight at that time have an unknown
/// fate and are not sent again.
///
/// Each domain starts with the debts of one key. If one of them fails, the domain pauses and the others go on: a domain
/// that is down costs one check a second. If the domain does not answer that check in time, its debt is lost.
async fn settle_all<C, F>(debts: Arc<Debts>, charge: C)
where
    C: Fn(Debt) -> F,
    F: Future<Output = Settlement> + Send + 'static,
{
    let mut answering = HashSet::new();
    loop {
        let mut debits = JoinSet::new();
        for debt in debts.take_batch(&answering) {
            let domain = debt.domain;
            let debit = charge(debt);
            debits.spawn(async move { (domain, debit.await) });
        }
        if debits.is_empty() {
            return debts.end_settlement();
        }
        let (mut failed, mut retries) = (HashSet::new(), Vec::new());
        for (domain, settlement) in debits.join_all().await {
            match settlement {
                Settlement::Answered => drop(answering.insert(domain)),
                Settlement::NotSent => {}
                Settlement::Failed { retry } => {
                    failed.insert(domain);
                    retries.extend(retry);
                }
            }
        }
        answering.retain(|domain| !failed.contains(domain));
        debts.add(retries);
        debts.pause(&failed);
    }
}
