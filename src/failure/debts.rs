//! What the fallback has admitted, and the store does not know of yet.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use super::fallback::Fallback;
use crate::{
    check::{Charge, Check},
    error::{Error, ErrorKind},
    key::Key,
    limiter::Limiter,
    policy::Policy,
};

/// Merged by key and policy.
#[derive(Default)]
pub(crate) struct Debts {
    /// So that a limiter without debts takes no lock.
    any: AtomicBool,
    owed: Mutex<Owed>,
}

#[derive(Default)]
struct Owed {
    by_key: HashMap<Key, SmallVec<[(Policy, u32); 1]>>,
    entries: usize,
    /// Somebody is paying, or nobody should before this.
    paying: bool,
    not_before: Option<Instant>,
}

struct Debt {
    key: Key,
    policy: Policy,
    cost: u32,
}

/// Of how many keys (a client under one policy is one) debts are remembered: about 2 MB.
const MOST: usize = 10_000;
/// Debits under way at the same time: a batch.
const AT_ONCE: usize = 128;
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);

impl Debts {
    pub(super) fn add(&self, charges: &[Charge]) {
        let mut owed = self.lock();
        for Charge { key, policy, cost } in charges.iter().filter(|charge| charge.cost > 0) {
            owed.add(Debt { key: key.clone(), policy: policy.clone(), cost: *cost });
        }
        self.any.store(owed.entries > 0, Ordering::Release);
    }

    pub(super) fn forget(&self, key: &Key, policy: &Policy) {
        let mut owed = self.lock();
        let Some(debts) = owed.by_key.get_mut(key) else { return };
        let before = debts.len();
        debts.retain(|(other, _)| !other.counts_with(policy));
        let gone = before - debts.len();
        if debts.is_empty() {
            owed.by_key.remove(key);
        }
        owed.entries -= gone;
    }

    /// Takes all debts, if there are some and it is time to pay them.
    fn take(&self) -> Option<Vec<Debt>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut owed = self.lock();
        if owed.paying || owed.not_before.is_some_and(|instant| Instant::now() < instant) {
            return None;
        }
        self.any.store(false, Ordering::Release);
        owed.entries = 0;
        let debts: Vec<_> = mem::take(&mut owed.by_key).into_iter().flat_map(Debt::of_key).collect();
        owed.paying = !debts.is_empty();
        owed.paying.then_some(debts)
    }

    /// Puts back what could not be paid.
    fn end(&self, unpaid: Vec<Debt>) {
        let mut owed = self.lock();
        owed.paying = false;
        owed.not_before = (!unpaid.is_empty()).then(|| Instant::now() + PAUSE);
        unpaid.into_iter().for_each(|debt| owed.add(debt));
        self.any.store(owed.entries > 0, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Owed> {
        // A lost count of entries would only move the cap.
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owed {
    fn add(&mut self, debt: Debt) {
        let debts = self.by_key.get_mut(&debt.key);
        if let Some(debts) = debts
            && let Some((_, cost)) = debts.iter_mut().find(|(policy, _)| *policy == debt.policy)
        {
            *cost = cost.saturating_add(debt.cost);
            return;
        }
        if self.entries < MOST {
            self.by_key.entry(debt.key).or_default().push((debt.policy, debt.cost));
            self.entries += 1;
        }
    }
}

impl Debt {
    fn of_key((key, debts): (Key, SmallVec<[(Policy, u32); 1]>)) -> impl Iterator<Item = Self> {
        debts.into_iter().map(move |(policy, cost)| Self { key: key.clone(), policy, cost })
    }
}

/// Charges what is owed, if something is. The store has just answered, so this is the time.
pub(crate) fn pay(limiter: &Limiter, fallback: &Arc<Fallback>) {
    let Some(debts) = fallback.debts.take() else { return };
    let mut payment = Payment { fallback: Arc::clone(fallback), unpaid: debts };
    // Without a runtime nothing could be sent, and the drop puts everything back.
    if let Ok(runtime) = Handle::try_current() {
        let limiter = limiter.clone();
        runtime.spawn(async move { payment.run(&limiter).await });
    }
}

/// What is still to be paid; put back when the task ends, however it ends.
struct Payment {
    fallback: Arc<Fallback>,
    unpaid: Vec<Debt>,
}

impl Payment {
    async fn run(&mut self, limiter: &Limiter) {
        while !self.unpaid.is_empty() {
            let rest = self.unpaid.len().saturating_sub(AT_ONCE);
            let mut debits = JoinSet::new();
            for debt in self.unpaid.drain(rest..) {
                debits.spawn(debit(limiter.clone(), Arc::clone(&self.fallback), debt));
            }
            let failed: Vec<_> = debits.join_all().await.into_iter().flatten().collect();
            if !failed.is_empty() {
                self.unpaid.extend(failed);
                return;
            }
        }
    }
}

impl Drop for Payment {
    fn drop(&mut self) {
        self.fallback.debts.end(mem::take(&mut self.unpaid));
    }
}

/// Charges one debt, as far as it fits, and returns it if it is to be tried again.
///
/// The checks are ordinary ones, so whatever they do the store never counts more than the limit.
async fn debit(limiter: Limiter, fallback: Arc<Fallback>, debt: Debt) -> Option<Debt> {
    let Debt { key, policy, cost } = &debt;
    // Our own refusals are nobody's denials.
    let policy = &policy.without_ban();
    // What has left the window since is no debt any more.
    let mut cost = (*cost).min(fallback.spent(key, policy));
    // A refusal that counts must not come of this, so what is there is looked up first.
    let mut peeks = policy.counts_rejected();
    while cost > 0 {
        let sent = if peeks { 0 } else { cost };
        match limiter.debit(Check::new(key.clone(), policy, sent)).await {
            Ok(decision) if decision.is_allowed() && !peeks => return None,
            Ok(decision) => cost = cost.saturating_sub(u32::from(!peeks)).min(decision.available().unwrap_or(0)),
            Err(error) => return may_be_sent_again(&error).then_some(debt),
        }
        peeks = false;
    }
    None
}

fn may_be_sent_again(error: &Error) -> bool {
    !error.may_have_charged() && !matches!(error.kind(), ErrorKind::BadKey | ErrorKind::Config)
}
