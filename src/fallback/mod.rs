//! The local fallback: an instance judges by its share of the limit while the store gives no verdict.
//!
//! This file judges by shares and counts what the store admits, one thread at a time for each key (`key_locks`).
//! `shares` divides policies by the number of instances and reserves room for checks that the store has not answered
//! yet, `debts` and `domain_debts` remember what the store has yet to be charged, and `settlement` charges it.

mod debts;
mod domain_debts;
mod key_locks;
mod settlement;
mod shares;

use std::{fmt, iter, sync::Arc};

use smallvec::SmallVec;

use self::shares::{Reserved, Share, Shares};
use self::{debts::Debts, key_locks::KeyLocks};
use crate::check::{Charge, Check, open_hold::OpenHold};
use crate::error::{Error, ErrorKind};
use crate::hold::{HoldChange, SettleAnswer};
use crate::observe::{Observer, with_reports_after};
use crate::store::{Answer, CountChange, MemoryStore, Store, failure_domain_of};
use crate::verdict::{Source, Verdict};
use crate::{decision::Decision, key::Key, policy::Policy};

pub(crate) use self::{
    domain_debts::Debt,
    settlement::Settlement,
    shares::{Instances, Reservation},
};

/// Counts what this instance admits, and judges by the instance's share while the store gives no verdict.
pub(crate) struct Fallback {
    memory: MemoryStore,
    shares: Shares,
    /// The store whose failures the fallback covers. It maps keys to failure domains.
    store: Arc<dyn Store>,
    debts: Arc<Debts>,
    reserved: Arc<Reserved>,
    locks: KeyLocks,
}

/// How often a charge of as much as fits looks for room. Each but the last was disturbed by another check.
const MOST_ATTEMPTS: u32 = 16;

/// Retry-After, in microseconds, of a cost that is above the share and within the limit: the store may be back by then.
const ABOVE_SHARE_RETRY_AFTER_US: u64 = 1_000_000;

impl Fallback {
    pub(crate) fn new(memory: MemoryStore, instances: Instances, store: Arc<dyn Store>) -> Self {
        let debts = Arc::new(Debts::new(store.deadline()));
        let shares = Shares::new(instances);
        Self { memory, shares, store, debts, reserved: Arc::default(), locks: KeyLocks::default() }
    }

    /// Passes the observer to the memory, which reports when it is full.
    pub(crate) fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.memory.set_observer(observer);
    }

    /// As [`mirror`](Self::mirror), unless `needs_room` and this instance has given the room away meanwhile. Returns
    /// whether the charges are counted.
    pub(crate) fn mirror_if_room<'a>(
        &self,
        charged: impl Iterator<Item = &'a Charge> + Clone,
        needs_room: bool,
    ) -> bool {
        // Locked without debts too: another thread may have admitted a check, and not noted its debt yet.
        self.locks.locked(charged.clone().map(|charge| &charge.key), || {
            if needs_room && self.debts.any() && !charged.clone().all(|charge| self.has_room_beside_debts(charge)) {
                return false;
            }
            self.mirror(charged);
            true
        })
    }

    /// Counts what the store has admitted, so that an outage gives no client a fresh budget.
    pub(crate) fn mirror<'a>(&self, charged: impl Iterator<Item = &'a Charge>) {
        self.count(charged, |share| Some(&share.mirror));
    }

    /// Counts each charge under one policy of its share, and mirrors each hold, whether or not it fits. Charges no
    /// bucket that keys share while the memory is full: the bucket would show for each key what the other keys have
    /// spent.
    fn count<'a>(&self, charged: impl Iterator<Item = &'a Charge>, policy_of: impl Fn(&Share) -> Option<&Policy>) {
        for Charge { key, policy, cost, hold, .. } in charged {
            let share = self.shares.of(policy);
            if let Some(id) = hold {
                let units = *cost.min(&share.mirror.capacity());
                self.memory.hold_own_count(key, &share.judging, *id, units);
                continue;
            }
            let Some(policy) = policy_of(&share) else { continue };
            let cost = *cost.min(&policy.capacity());
            self.memory.charge_own_count(&Charge::new(key.clone(), policy.clone(), cost));
        }
    }

    /// Whether the number of instances is known.
    pub(crate) fn can_judge(&self) -> bool {
        self.shares.are_known()
    }

    /// Judges a check for which the store returned `error`, and remembers what is admitted as a debt to the store.
    ///
    /// Returns the error if the number of instances is unknown.
    pub(crate) fn judge(&self, check: &Check, error: &Error) -> Result<Decision, Error> {
        self.judge_then(check, error, |verdict| {
            let is_debt = becomes_debt(error);
            // A hold becomes a debt when it is settled. Until then the store does not know it.
            let unsure = verdict.charged(check).filter(|charge| !is_debt || charge.hold.is_some());
            unsure.for_each(|charge| self.note_unsure(&charge.key, &charge.policy));
            if is_debt {
                self.add_debts(verdict.charged(check).filter(|charge| charge.hold.is_none()));
            }
        })
    }

    /// As [`judge`](Self::judge), of a check that the store has charged: nothing is owed to the store.
    pub(crate) fn judge_charged(&self, check: &Check, error: &Error) -> Result<Decision, Error> {
        self.judge_then(check, error, |_| ())
    }

    /// Judges a check under the locks of its keys. Calls `on_allowed` under the same locks, so that debts are noted
    /// before another thread looks.
    fn judge_then(&self, check: &Check, error: &Error, on_allowed: impl FnOnce(&Verdict)) -> Result<Decision, Error> {
        let verdict = self.locks.locked(check.charges().iter().map(|charge| &charge.key), || {
            let verdict = self.judge_by(check, error, |shares| self.judge_in_memory(shares));
            verdict.inspect(|verdict| {
                if verdict.allowed {
                    on_allowed(verdict)
                }
            })
        })?;
        // The decision names the whole policies: a share would disclose the number of instances to clients.
        Ok(Decision::new(&mut check.clone(), &verdict).owed(becomes_debt(error)))
    }

    /// The verdict on a check by the shares of its policies, as `judge` returns it. The error if the number of
    /// instances is unknown.
    fn judge_by(
        &self,
        check: &Check,
        error: &Error,
        judge: impl FnOnce(&Check) -> Option<Verdict>,
    ) -> Result<Verdict, Error> {
        if !self.can_judge() {
            return Err(error.clone());
        }
        let mut shares: SmallVec<[Charge; 2]> = SmallVec::new();
        // What checks on their way to the store may take of each share.
        let mut taken: SmallVec<[u64; 2]> = SmallVec::new();
        for charge @ Charge { policy, cost, .. } in check.charges() {
            // A cost that fits no shard never passes, although it may fit the share, which is one of the whole policy.
            let mut share = Charge { policy: self.shares.of(policy).judging, ..charge.clone() };
            let reserved = self.reserved.of(&share);
            taken.push(reserved);
            let is_taken = reserved > 0 && !self.fits(&share, cost.saturating_add(reserved));
            if *cost > policy.capacity() || is_taken {
                share.cost = u64::MAX;
            }
            shares.push(share);
        }
        // The charges of `check` have distinct counts, and so have their shares.
        let shares = Check::of_distinct(shares);
        let mut verdict = judge(&shares).ok_or_else(|| error.clone())?;
        verdict.source = Source::Local;
        for ((charge, outcome), taken) in check.charges().iter().zip(&mut verdict.outcomes).zip(taken) {
            outcome.available = outcome.available.saturating_sub(taken);
            if !outcome.fits && outcome.retry_after_us.is_none() && charge.cost <= charge.policy.capacity() {
                outcome.retry_after_us = Some(ABOVE_SHARE_RETRY_AFTER_US);
            }
        }
        Ok(verdict)
    }

    /// Looks up whether the costs of a check for which the store returned `error` would pass. Charges nothing.
    pub(crate) fn peek(&self, check: &Check, error: &Error) -> Result<Decision, Error> {
        let peek = |shares: &Check| match self.memory.peek(shares) {
            Answer::Ready(verdict) => verdict.ok(),
            // A memory store always answers at once.
            Answer::Pending(_) => None,
        };
        let verdict = self.judge_by(check, error, peek)?;
        Ok(Decision::new(&mut check.clone(), &verdict))
    }

    /// Charges as much of the only charge of a check as the share has room for.
    pub(crate) fn judge_up_to(&self, check: &Check, error: &Error) -> Result<Decision, Error> {
        let mut part = check.clone();
        let mut decision = Err(error.clone());
        for _ in 0..MOST_ATTEMPTS {
            let available = self.peek(&part, error)?.policies().first().map_or(0, |policy| policy.available);
            let cost = check.charges().iter().map(|charge| charge.cost).sum::<u64>().min(available);
            part.set_cost(cost.max(1));
            let judged = self.judge(&part, error)?;
            let is_denied = judged.policies().iter().any(|policy| policy.violated || policy.would_deny);
            if !is_denied {
                return Ok(judged);
            }
            decision = Ok(judged.without_cost());
            // Otherwise another check has taken the room meanwhile.
            if cost == 0 {
                break;
            }
        }
        decision
    }

    /// Charges the store later for what was admitted here.
    fn add_debts<'a>(&self, charged: impl Iterator<Item = &'a Charge>) {
        let charged: Vec<&Charge> = charged.collect();
        self.count(charged.iter().copied(), |share| Some(&share.unsettled));
        self.count(charged.iter().copied(), |share| share.unsettled_whole.as_ref());
        self.debts.add(charged.into_iter().map(|charge| self.debt(charge)).collect());
    }

    /// Charges the store later for a hold that was made here and settled.
    pub(crate) fn owe(&self, charge: &Charge) {
        if charge.cost > 0 {
            self.add_debts(iter::once(charge));
        }
    }

    /// Gives units back that the store has given back.
    pub(crate) fn credit(&self, Charge { key, policy, cost, .. }: &Charge) {
        drop(self.memory.change_count(key, &self.shares.of(policy).mirror, CountChange::Credit(*cost)));
    }

    /// Notes that the store may lack units that were admitted here, and that are not sent again.
    pub(crate) fn note_unsure(&self, key: &Key, policy: &Policy) {
        self.debts.unsure.note(key, policy);
    }

    /// Takes units off the debt of a charge that the store has made for a request which is denied.
    pub(crate) fn pay(&self, Charge { key, policy, cost, .. }: &Charge) {
        self.debts.pay(failure_domain_of(&*self.store, key), key, policy, *cost);
    }

    /// Changes a hold that was made here.
    pub(crate) fn change_hold(&self, hold: &OpenHold, change: HoldChange) -> SettleAnswer {
        self.change_own_hold(hold, &self.shares.of(&hold.policy).judging, change)
    }

    /// Changes a hold in the memory, under a policy of its share.
    fn change_own_hold(&self, hold: &OpenHold, policy: &Policy, change: HoldChange) -> SettleAnswer {
        let own = OpenHold::new(hold.key.clone(), policy.clone(), hold.id());
        match self.memory.change_hold(&own, change) {
            Answer::Ready(settlement) => settlement.unwrap_or(SettleAnswer::Expired),
            // A memory store always answers at once.
            Answer::Pending(_) => SettleAnswer::Expired,
        }
    }

    /// Renews a hold that was made here.
    pub(crate) fn renew_own_hold(&self, hold: &OpenHold) -> SettleAnswer {
        self.note_unsure(&hold.key, &hold.policy);
        self.change_hold(hold, HoldChange::Renew)
    }

    /// Changes the mirror of a hold that the store has changed. Its units are at most what the mirror can hold.
    pub(crate) fn mirror_change(&self, hold: &OpenHold, change: HoldChange) {
        let change = match change {
            HoldChange::Settle(actual) => {
                HoldChange::Settle(actual.min(self.shares.of(&hold.policy).mirror.capacity()))
            }
            HoldChange::Renew => HoldChange::Renew,
        };
        // What the store has admitted is no denial of the share.
        self.change_own_hold(hold, &self.shares.of(&hold.policy).judging.without_ban(), change);
    }

    /// Takes room of the instance's share for `check`, and for at least `least` units of each policy, until the result
    /// is dropped. `None` if there is no room. Shadow policies need none, because they deny nothing.
    pub(crate) fn reserve(&self, check: &Check, least: u64) -> Option<Reservation> {
        self.reserve_of(check, least, |share| Some(share.judging.clone()))
    }

    /// As [`reserve`](Self::reserve), of the whole limit: what this instance has admitted by itself and by the store
    /// is within it.
    pub(crate) fn reserve_whole(&self, check: &Check, least: u64) -> Option<Reservation> {
        self.reserve_of(check, least, Share::whole)
    }

    fn reserve_of(&self, check: &Check, least: u64, of: impl Fn(&Share) -> Option<Policy>) -> Option<Reservation> {
        let mut counts: SmallVec<[Charge; 1]> = SmallVec::new();
        let fits = |count: &Charge, units: u64| self.fits(count, units.max(least));
        with_reports_after(|| {
            for group in check.groups() {
                let from = counts.len();
                counts.extend(group.iter().filter(|charge| !charge.policy.is_shadow()).filter_map(|charge| {
                    let Charge { key, policy, cost, .. } = charge;
                    of(&self.shares.of(policy)).map(|policy| Charge::new(key.clone(), policy, *cost))
                }));
                if group.len() > 1 && counts.len() > from {
                    // Room in all alternatives that have some, because the store may charge any of them.
                    let mut number = 0;
                    counts.retain(|count| {
                        number += 1;
                        number <= from || fits(count, count.cost.saturating_add(self.reserved.of(count)))
                    });
                    if counts.len() == from {
                        return None;
                    }
                }
            }
            self.reserved.reserve(counts.iter(), fits)
        })
    }

    /// Whether a charge that the store has made fits this instance's counts as well: its share while it owes units of
    /// the count, and the whole limit while the store may lack some.
    fn has_room_beside_debts(&self, charge: &Charge) -> bool {
        let Charge { key, policy, cost, .. } = charge;
        // Shadow policies deny nothing.
        if policy.is_shadow() {
            return true;
        }
        let share = self.shares.of(policy);
        let fits = |policy: &Policy| self.fits(&Charge::new(key.clone(), policy.clone(), 0), *cost);
        let owes = self.debts.owe(|| failure_domain_of(&*self.store, key), key, policy);
        (!owes || fits(&share.judging))
            && (!self.debts.is_unsure(key, policy) || share.whole().as_ref().is_none_or(fits))
    }

    /// Whether the count of this charge of a share has room for `units`.
    fn fits(&self, share: &Charge, units: u64) -> bool {
        let peek = self.judge_in_memory(&Check::new(share.key.clone(), &share.policy, 0));
        peek.is_some_and(|verdict| verdict.outcomes.iter().all(|outcome| outcome.available >= units))
    }

    /// The units that the fallback has admitted for `key` within the window. 0 if a full memory has no count of the
    /// key, so that a debt that may have left its window is not charged.
    pub(crate) fn unsettled(&self, key: &Key, policy: &Policy) -> u64 {
        let share = self.shares.of(policy);
        share.all_unsettled().map(|policy| self.memory.spent(key, policy)).max().unwrap_or(0)
    }

    /// Forgets the counts and the debts of a key. Returns whether there was a count to forget.
    pub(crate) fn forget(&self, key: &Key, policy: &Policy) -> bool {
        self.locks.locked(iter::once(key), || {
            let found = matches!(self.memory.reset(key, policy), Answer::Ready(Ok(true)));
            // The unsettled units are also in the count that `found` covers.
            let share = self.shares.of(policy);
            share.all_unsettled().for_each(|policy| drop(self.memory.reset(key, policy)));
            self.debts.forget(failure_domain_of(&*self.store, key), key, policy);
            found
        })
    }

    /// Ends a ban to which denials of the fallback have led. Returns whether there was one.
    pub(crate) fn unban(&self, key: &Key, policy: &Policy) -> bool {
        let share = self.shares.of(policy).judging;
        matches!(self.memory.change_count(key, &share, CountChange::Unban), Answer::Ready(Ok(1..)))
    }

    pub(crate) fn debts(&self) -> &Arc<Debts> {
        &self.debts
    }

    fn debt(&self, Charge { key, policy, cost, .. }: &Charge) -> Debt {
        let domain = failure_domain_of(&*self.store, key);
        Debt { domain, key: key.clone(), policy: policy.clone(), cost: *cost, kept: 0 }
    }

    fn judge_in_memory(&self, check: &Check) -> Option<Verdict> {
        match self.memory.check(check) {
            Answer::Ready(verdict) => verdict.ok(),
            // A memory store always answers at once.
            Answer::Pending(_) => None,
        }
    }
}

/// Whether the store has to be charged later for what is admitted after `error`. A check that may have been charged is
/// never sent again. A check that is wrong, or whose key is unusable, would fail again.
fn becomes_debt(error: &Error) -> bool {
    !error.may_have_charged() && !matches!(error.kind(), ErrorKind::BadKey | ErrorKind::InvalidCall)
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("memory", &self.memory)
            .field("instances", &self.shares.instances)
            .finish_non_exhaustive()
    }
}
