//! What the fallback has admitted, and the store does not know of yet.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use super::shares::Fallback;
use crate::{
    check::Check,
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
    /// By part of the store, because one part may be away while another one is back.
    parts: HashMap<usize, Part>,
    entries: usize,
    /// A payment is under way until then; after that its runtime has come to rest, and another one may begin.
    paying_until: Option<Instant>,
}

#[derive(Default)]
struct Part {
    by_key: HashMap<Key, SmallVec<[(Policy, u32); 1]>>,
    /// When the part may be paid again after a failure.
    not_before: Option<Instant>,
}

/// What is owed for a key under a policy.
pub(super) struct Debt {
    /// The part of the store that has the key.
    pub(super) part: usize,
    pub(super) key: Key,
    pub(super) policy: Policy,
    pub(super) cost: u32,
}

/// Of how many keys (a client under one policy is one) debts are remembered: about 2 MB.
const MOST: usize = 10_000;
/// Debits under way at the same time: a batch.
const AT_ONCE: usize = 128;
/// Between two payments to a part that fails, and the longest that a payment may come to rest.
const PAUSE: Duration = Duration::from_secs(1);

impl Debts {
    pub(super) fn add(&self, debts: Vec<Debt>) {
        let mut owed = self.lock();
        debts.into_iter().for_each(|debt| owed.add(debt));
        self.any.store(owed.entries > 0, Ordering::Release);
    }

    pub(super) fn forget(&self, part: usize, key: &Key, policy: &Policy) {
        let mut owed = self.lock();
        let Some(by_key) = owed.parts.get_mut(&part).map(|part| &mut part.by_key) else { return };
        let Some(debts) = by_key.get_mut(key) else { return };
        let before = debts.len();
        debts.retain(|(other, _)| !other.counts_with(policy));
        let gone = before - debts.len();
        if debts.is_empty() {
            by_key.remove(key);
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
        let is_free = owed.paying_until.is_none_or(|until| until <= now);
        let due = is_free && owed.parts.values().any(|part| part.is_due(now));
        if due {
            owed.paying_until = Some(now + PAUSE);
        }
        due
    }

    /// Takes as many as are paid at once: those of parts that are `answering`, and of each other part one key's,
    /// because that part may still be away.
    fn take(&self, answering: &HashSet<usize>) -> Vec<Debt> {
        let mut owed = self.lock();
        let now = Instant::now();
        let mut taken = Vec::new();
        for (&number, part) in owed.parts.iter_mut().filter(|(_, part)| part.is_due(now)) {
            let full = if answering.contains(&number) { AT_ONCE } else { AT_ONCE.min(taken.len() + 1) };
            while taken.len() < full
                && let Some(key) = part.by_key.keys().next().cloned()
            {
                let debts = part.by_key.remove(&key).unwrap_or_default();
                let debt = |(policy, cost)| Debt { part: number, key: key.clone(), policy, cost };
                taken.extend(debts.into_iter().map(debt));
            }
        }
        owed.entries -= taken.len();
        owed.parts.retain(|_, part| !part.by_key.is_empty());
        owed.paying_until = Some(now + PAUSE);
        self.any.store(owed.entries > 0, Ordering::Release);
        taken
    }

    /// Lets the parts that have failed rest.
    fn pause(&self, parts: &HashSet<usize>) {
        let mut owed = self.lock();
        let not_before = Some(Instant::now() + PAUSE);
        for (_, part) in owed.parts.iter_mut().filter(|(number, _)| parts.contains(number)) {
            part.not_before = not_before;
        }
    }

    /// Nothing more can be paid now, so whatever comes next may be paid at once.
    fn end(&self) {
        self.lock().paying_until = None;
    }

    fn lock(&self) -> MutexGuard<'_, Owed> {
        // A lost count of entries would only move the cap.
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owed {
    fn add(&mut self, Debt { part, key, policy, cost }: Debt) {
        if let Some(part) = self.parts.get_mut(&part)
            && let Some(debts) = part.by_key.get_mut(&key)
            && let Some((_, owed)) = debts.iter_mut().find(|(other, _)| *other == policy)
        {
            *owed = owed.saturating_add(cost);
            return;
        }
        if self.entries < MOST {
            self.parts.entry(part).or_default().by_key.entry(key).or_default().push((policy, cost));
            self.entries += 1;
        }
    }
}

impl Part {
    fn is_due(&self, now: Instant) -> bool {
        !self.by_key.is_empty() && self.not_before.is_none_or(|instant| instant <= now)
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

/// A batch after the other, until all is paid or the parts that are left rest after a failure. What is not taken when
/// the task ends is paid by another one; what is under way then has an unknown fate, and is not sent again.
///
/// Each part begins with one debt. If that fails, the part rests and the others go on: a part that is away costs one
/// check a second, and one that does not answer takes one debt with it.
async fn pay_all(limiter: Limiter, fallback: Arc<Fallback>) {
    let mut answering = HashSet::new();
    loop {
        let mut debits = JoinSet::new();
        for debt in fallback.debts.take(&answering) {
            let part = debt.part;
            let debit = debit(limiter.clone(), Arc::clone(&fallback), debt);
            debits.spawn(async move { (part, debit.await) });
        }
        if debits.is_empty() {
            return fallback.debts.end();
        }
        let (mut failed, mut unpaid) = (HashSet::new(), Vec::new());
        for (part, debited) in debits.join_all().await {
            match debited {
                Ok(true) => drop(answering.insert(part)),
                Ok(false) => {}
                Err(debt) => {
                    failed.insert(part);
                    unpaid.extend(debt);
                }
            }
        }
        answering.retain(|part| !failed.contains(part));
        fallback.debts.add(unpaid);
        fallback.debts.pause(&failed);
    }
}

/// Charges one debt, as far as it fits, and tells whether the store has answered: it is not asked for what has left its
/// window. After a failure, returns the debt if it is to be tried again.
///
/// The checks are ordinary ones, so whatever they do the store never counts more than the limit.
async fn debit(limiter: Limiter, fallback: Arc<Fallback>, debt: Debt) -> Result<bool, Option<Debt>> {
    let Debt { key, policy, cost, .. } = &debt;
    // What has left the window since is no debt any more.
    let mut cost = (*cost).min(fallback.admitted(key, policy));
    let is_asked = cost > 0;
    // A refusal that counts must not come of this, so what is there is looked up first.
    let mut peeks = policy.count_rejected();
    // Our own refusals are nobody's denials.
    let mild = policy.without_ban();
    while cost > 0 {
        let sent = if peeks { 0 } else { cost };
        match limiter.debit(Check::new(key.clone(), &mild, sent)).await {
            Ok(decision) if decision.is_allowed() && !peeks => return Ok(true),
            Ok(decision) => cost = cost.saturating_sub(u32::from(!peeks)).min(decision.available().unwrap_or(0)),
            // The store is well, and has no use for this one.
            Err(error) if concerns_the_key_alone(&error) => return Ok(true),
            Err(error) => return Err((!error.may_have_charged()).then_some(debt)),
        }
        peeks = false;
    }
    Ok(is_asked)
}

fn concerns_the_key_alone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BadKey | ErrorKind::Config)
}
