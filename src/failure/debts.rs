//! What the fallback has admitted, and the store does not know of yet.

use std::{
    collections::HashMap,
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
    /// Nobody pays before this: somebody is about to, or it has just failed.
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
/// After a failure; and as long as somebody has who said that it would pay, for its runtime may have come to rest.
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

    /// Whether there are debts and it is time to pay them: once for all who ask.
    fn is_due(&self) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut owed = self.lock();
        let now = Instant::now();
        let due = owed.not_before.is_none_or(|instant| instant <= now);
        if due {
            owed.not_before = Some(now + PAUSE);
        }
        due
    }

    /// Takes as many as are paid at once.
    fn take(&self) -> Vec<Debt> {
        let mut owed = self.lock();
        let mut taken = Vec::new();
        while taken.len() < AT_ONCE {
            let Some(key) = owed.by_key.keys().next().cloned() else { break };
            let debts = owed.by_key.remove(&key).unwrap_or_default();
            owed.entries -= debts.len();
            taken.extend(debts.into_iter().map(|(policy, cost)| Debt { key: key.clone(), policy, cost }));
        }
        // Others may pay in between, should this one come to rest.
        owed.not_before = Some(Instant::now() + PAUSE);
        self.any.store(owed.entries > 0, Ordering::Release);
        taken
    }

    /// Puts back what could not be paid.
    fn put_back(&self, unpaid: Vec<Debt>) {
        let mut owed = self.lock();
        unpaid.into_iter().for_each(|debt| owed.add(debt));
        self.any.store(owed.entries > 0, Ordering::Release);
    }

    /// All is paid, so the next debts may be paid at once.
    fn end(&self) {
        self.lock().not_before = None;
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

/// Charges what is owed, if something is. The store has just answered, so this is the time.
pub(crate) fn pay(limiter: &Limiter, fallback: &Arc<Fallback>) {
    // Without a runtime nothing could be sent.
    if let Ok(runtime) = Handle::try_current()
        && fallback.debts.is_due()
    {
        runtime.spawn(pay_all(limiter.clone(), Arc::clone(fallback)));
    }
}

/// A batch after the other, until all is paid or something fails. What is not taken when the task ends is paid by
/// another one; what is under way then has an unknown fate, and is not sent again.
async fn pay_all(limiter: Limiter, fallback: Arc<Fallback>) {
    loop {
        let mut debits = JoinSet::new();
        for debt in fallback.debts.take() {
            debits.spawn(debit(limiter.clone(), Arc::clone(&fallback), debt));
        }
        if debits.is_empty() {
            return fallback.debts.end();
        }
        let failed: Vec<_> = debits.join_all().await.into_iter().flatten().collect();
        if !failed.is_empty() {
            return fallback.debts.put_back(failed);
        }
    }
}

/// Charges one debt, as far as it fits, and returns it if it is to be tried again.
///
/// The checks are ordinary ones, so whatever they do the store never counts more than the limit.
async fn debit(limiter: Limiter, fallback: Arc<Fallback>, debt: Debt) -> Option<Debt> {
    let Debt { key, policy, cost } = &debt;
    // What has left the window since is no debt any more.
    let mut cost = (*cost).min(fallback.admitted(key, policy));
    // A refusal that counts must not come of this, so what is there is looked up first.
    let mut peeks = policy.counts_rejected();
    // Our own refusals are nobody's denials.
    let mild = policy.without_ban();
    while cost > 0 {
        let sent = if peeks { 0 } else { cost };
        match limiter.debit(Check::new(key.clone(), &mild, sent)).await {
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
