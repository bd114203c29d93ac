//! What the store has denied need not be asked again until time has freed something.

use std::{
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use super::{Outcome, Verdict};
use crate::{
    check::{Charge, Check},
    key::Key,
    policy::Policy,
    verdict::Source,
};

/// Remembers denials for as long as they are sure to hold.
///
/// A policy that is spent to the last unit admits nothing, whatever it costs and whoever asks, until time frees a unit.
/// Until that instant its count is frozen: the store would deny the same check again with the same wait, and need not
/// be asked. One frozen policy makes the denial of the whole check certain, also where the other policies have room.
///
/// # What else the verdict says
///
/// The longest wait of all violated policies is the Retry-After. Other checks may spend what the policies with room
/// have left, and then the remembered wait comes too early. A charge to the key that this process makes ends such
/// denials. Where all charges have one key, other processes charge all of its policies by the same checks in practice, and
/// these are denied: the denial is kept for the longest age. Where keys differ (a tenant that many users share), or where
/// a violated policy has units left, but too few, it is kept for [`LOOSE_AGE_US`].
/// The units that a policy with room has available are those of the store's answer.
///
/// Checks whose refusals are counted, also those that may lead to a ban, are never remembered: the store has to see
/// them. A ban is frozen until its end. A verdict in which a master of a cluster has no part is not remembered either.
///
/// # What else changes a count
///
/// Exceptions to "nothing but time" are resets, the loss of data and, on a cluster, what is given back by checks that
/// were paid in part. A reset or a refund made through this process forgets at once what concerns its key, also the
/// denials that are still on their way ([`DenyCache::epoch`]). The loss of a connection forgets everything, because
/// then the failure policy rules. Anything else is noticed after the longest age, which is much shorter on a cluster.
///
/// The time is the local one. A remembered denial counts from before the check was sent, and a little is taken off for
/// clocks that run at different speeds.
#[derive(Debug)]
pub(super) struct DenyCache {
    sets: Box<[Mutex<Set>]>,
    hasher: RandomState,
    /// Of all denials.
    epoch: AtomicU64,
    /// How many denials have been remembered.
    denials: AtomicU64,
    /// Of the denials that concern a key of the group.
    epochs: Box<[AtomicU64]>,
    /// Which policies the denials of a group depend on.
    depends: Box<[Depends]>,
    /// However long the wait, the store is asked again after so long.
    max_age_us: u64,
}

type Set = [Option<Box<Entry>>; WAYS];

#[derive(Debug)]
struct Entry {
    hash: u64,
    check: Check,
    verdict: Verdict,
    epoch: u64,
    /// When the verdict came: its waits count from here …
    received_us: u64,
    /// … and the denial holds for all that comes before this.
    until_us: u64,
}

/// 8 192 denials, at most about 3 MB; a newer one takes the place of the one that ends soonest.
const SETS: usize = 2_048;
const WAYS: usize = 4;

/// Keys that share an epoch. A reset forgets the denials of its group: of ten thousand keys those of two or three.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyGroup(usize);

const GROUPS: usize = 4_096;

/// Policies of remembered denials, a bit each. Two may share one; then a denial is forgotten that need not be.
#[derive(Debug, Default)]
struct Depends {
    /// Those that had room.
    roomy: AtomicU64,
    /// Those because of which checks were denied.
    spent: AtomicU64,
}

fn bit(policy: &Policy) -> u64 {
    1 << (policy.name_hash() % 64)
}

/// A key and a policy, as denials are found by them.
pub(super) struct Concern {
    group: KeyGroup,
    policy: u64,
    /// Whether nothing is charged.
    is_peek: bool,
}

/// One for each charge, in order.
pub(super) type Concerns = SmallVec<[Concern; 1]>;

/// On a single server, which may have lost its data, or where another process may have reset the key …
pub(super) const MAX_AGE_US: u64 = 10_000_000;
/// … and on a cluster, where another process may give back what it has just paid.
#[cfg(feature = "cluster")]
pub(super) const MAX_AGE_ON_CLUSTER_US: u64 = 1_000_000;

/// The longest age of a denial whose Retry-After other checks may make longer.
const LOOSE_AGE_US: u64 = 1_000_000;

/// A thousandth: twice what clocks out of step with the world are corrected by (500 ppm).
const DRIFT: u64 = 1_000;

impl DenyCache {
    pub(super) fn new(max_age_us: u64) -> Self {
        Self {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            epoch: AtomicU64::new(0),
            denials: AtomicU64::new(0),
            epochs: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
            depends: (0..GROUPS).map(|_| Depends::default()).collect(),
            max_age_us,
        }
    }

    /// The verdict on `check` at `now_us`, if it is certain.
    ///
    /// `latest_us` is the latest time that was ever seen: a denial that was over does not come back with a clock that
    /// runs backwards.
    pub(super) fn get(&self, check: &Check, now_us: u64, latest_us: u64) -> Option<Verdict> {
        let (hash, epoch) = self.hash(check);
        let set = self.set(hash);
        let entry = set.iter().flatten().find(|entry| entry.hash == hash && same(&entry.check, check))?;
        if now_us < entry.received_us || latest_us >= entry.until_us || entry.epoch != epoch {
            return None;
        }
        let passed = now_us - entry.received_us;
        let mut verdict = entry.verdict.clone();
        verdict.source = Source::DenyCache;
        verdict.time_us += passed;
        for outcome in &mut verdict.outcomes {
            outcome.retry_after_us = outcome.retry_after_us.map(|wait| wait.saturating_sub(passed));
            outcome.next_us = outcome.next_us.saturating_sub(passed);
            outcome.reset_us = outcome.reset_us.saturating_sub(passed);
            outcome.ban_us = outcome.ban_us.saturating_sub(passed);
        }
        Some(verdict)
    }

    /// Remembers a verdict on a check that was sent at `sent_us`, in the epoch that was read before.
    pub(super) fn put(&self, check: &Check, verdict: &Verdict, epoch: u64, sent_us: u64, received_us: u64) {
        let counts = |(charge, outcome): (&Charge, &Outcome)| {
            outcome.ban_us == 0 && (charge.policy.count_rejected() || charge.policy.ban().is_some())
        };
        let counted = check.charges().iter().zip(&verdict.outcomes).any(counts);
        let Some(Certainty { wait_us, is_loose }) = certainty(check, verdict) else { return };
        let (hash, latest_epoch) = self.hash(check);
        if verdict.allowed || counted || epoch != latest_epoch {
            return;
        }
        let max_age_us = if is_loose { self.max_age_us.min(LOOSE_AGE_US) } else { self.max_age_us };
        let until_us = sent_us + (wait_us - wait_us.div_ceil(DRIFT)).min(max_age_us);
        if until_us <= received_us {
            return;
        }
        for (charge, outcome) in check.charges().iter().zip(&verdict.outcomes) {
            let depends = &self.depends[self.group(&charge.key).0];
            let policies = if outcome.fits { &depends.roomy } else { &depends.spent };
            policies.fetch_or(bit(&charge.policy), Ordering::AcqRel);
        }
        let entry = Entry { hash, check: check.clone(), verdict: verdict.clone(), epoch, received_us, until_us };
        let mut set = self.set(hash);
        let mine = |slot: &&mut Option<Box<Entry>>| {
            slot.as_ref().is_some_and(|entry| entry.hash == hash && same(&entry.check, check))
        };
        let slot = match set.iter_mut().find(mine) {
            Some(slot) => Some(slot),
            None => set.iter_mut().min_by_key(|slot| slot.as_ref().map_or(0, |entry| entry.until_us)),
        };
        if let Some(slot) = slot {
            *slot = Some(Box::new(entry));
            self.denials.fetch_add(1, Ordering::Release);
        }
    }

    /// How many denials have been remembered so far: while it stays the same, there is nothing new to be found.
    pub(super) fn denials(&self) -> u64 {
        self.denials.load(Ordering::Acquire)
    }

    /// Read it before a check is sent: a denial of an earlier epoch is not remembered.
    ///
    /// It is the sum of the epochs of all denials and of the groups of the check's keys. Each of them only grows, so
    /// the sum stays the same only if all of them do.
    pub(super) fn epoch(&self, check: &Check) -> u64 {
        self.hash(check).1
    }

    pub(super) fn group(&self, key: &Key) -> KeyGroup {
        KeyGroup(group_of(self.hasher.hash_one(key)))
    }

    /// Forgets everything, also what is still to come for checks that were sent before.
    pub(super) fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// The same, of the checks that concern a key of `group`.
    pub(super) fn forget_group(&self, group: KeyGroup) {
        self.epochs[group.0].fetch_add(1, Ordering::AcqRel);
    }

    /// Which remembered denials the verdict on a check may end. None while nothing has been remembered.
    pub(super) fn concerns(&self, check: &Check) -> Concerns {
        if self.denials() == 0 {
            return Concerns::new();
        }
        let concern = |Charge { key, policy, cost }: &Charge| Concern {
            group: self.group(key),
            policy: bit(policy),
            is_peek: *cost == 0,
        };
        check.charges().iter().map(concern).collect()
    }

    /// Ends denials that the verdict makes wrong. A policy that was charged may have no room any more. One that had no
    /// room, and has some now, was reset by another process, or was given back to.
    pub(super) fn learn(&self, concerns: &Concerns, verdict: &Verdict) {
        for (concern, outcome) in concerns.iter().zip(&verdict.outcomes) {
            if concern.is_peek && outcome.available > 0 {
                self.forget_if(concern, |depends| &depends.spent);
            } else if !concern.is_peek && verdict.allowed {
                self.forget_if(concern, |depends| &depends.roomy);
            }
        }
    }

    fn forget_if(&self, &Concern { group, policy, .. }: &Concern, by: impl Fn(&Depends) -> &AtomicU64) {
        let depends = &self.depends[group.0];
        if by(depends).load(Ordering::Acquire) & policy != 0 {
            depends.roomy.store(0, Ordering::Release);
            depends.spent.store(0, Ordering::Release);
            self.forget_group(group);
        }
    }

    /// The hash of a check, and its epoch, in one pass over its keys.
    fn hash(&self, check: &Check) -> (u64, u64) {
        let (mut hash, mut epoch) = (0_u64, self.epoch.load(Ordering::Acquire));
        for charge in check.charges() {
            let mut hasher = self.hasher.build_hasher();
            charge.key.hash(&mut hasher);
            let group = group_of(hasher.finish());
            epoch = epoch.wrapping_add(self.epochs[group].load(Ordering::Acquire));
            (charge.policy.name(), charge.cost).hash(&mut hasher);
            hash = hash.rotate_left(1) ^ hasher.finish();
        }
        (hash, epoch)
    }

    fn set(&self, hash: u64) -> MutexGuard<'_, Set> {
        let index = usize::try_from(hash % SETS as u64).unwrap_or(0);
        // An entry is put in whole, so a poisoned lock is as good as any.
        self.sets[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn group_of(hash: u64) -> usize {
    usize::try_from(hash % GROUPS as u64).unwrap_or(0)
}

fn same(one: &Check, other: &Check) -> bool {
    let (one, other) = (one.charges(), other.charges());
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| a.cost == b.cost && a.key == b.key && a.policy == b.policy)
}

/// How sure a denial is.
struct Certainty {
    /// Until the first unit of a frozen policy comes back, a ban ends, or another policy is no longer violated.
    wait_us: u64,
    /// Whether other checks may make its Retry-After longer.
    is_loose: bool,
}

/// How sure a denial is; `None` if no violated policy is frozen, so that a smaller charge of others might change it.
fn certainty(check: &Check, verdict: &Verdict) -> Option<Certainty> {
    let charges = check.charges();
    let mut is_frozen = false;
    let mut certainty =
        Certainty { wait_us: u64::MAX, is_loose: charges.windows(2).any(|pair| pair[0].key != pair[1].key) };
    for (charge, outcome) in charges.iter().zip(&verdict.outcomes) {
        match outcome {
            Outcome { fits: false, available: 0, retry_after_us: Some(_), .. } => {
                // After a ban, denials are counted again.
                let change_us = if outcome.ban_us > 0 { outcome.ban_us } else { outcome.next_us };
                certainty.wait_us = certainty.wait_us.min(change_us);
                is_frozen = true;
            }
            Outcome { fits: false, retry_after_us, .. } => {
                certainty.wait_us = certainty.wait_us.min(retry_after_us.unwrap_or(u64::MAX));
                certainty.is_loose = true;
            }
            // What fits leaves room where nothing was charged: this slot of a cluster has not answered.
            Outcome { fits: true, available: 0, .. } if charge.cost > 0 => return None,
            Outcome { fits: true, .. } => {}
        }
    }
    is_frozen.then_some(certainty)
}
