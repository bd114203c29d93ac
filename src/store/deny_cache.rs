//! The deny cache: remembers denials that hold until time frees a unit.

use std::{
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use crate::{
    check::{Charge, Check},
    key::Key,
    policy::Policy,
    verdict::{Outcome, Source, Verdict},
};

/// Remembers denials for as long as they are certain to hold.
///
/// A policy that is spent to the last unit admits nothing, whatever the cost, until time frees a unit. Until then its
/// count is frozen: the store would deny the same check again until the same time, so the check is not sent. One frozen
/// policy makes the denial of the whole check certain, even if the other policies have room.
///
/// # The rest of the verdict
///
/// The Retry-After of a check is the longest wait of all violated policies. Other checks may spend what the policies
/// with room have left, and then the remembered wait is too short. If this process charges such a policy, it forgets
/// the denial. Other processes may charge it as well. If all charges of the check have the same key, in practice every
/// process charges these policies together, and such checks are denied; so the denial is kept for the longest age. If
/// the keys differ (a tenant that many users share), or if a violated policy has some units left, the denial is kept
/// for [`LOOSE_AGE_US`]. A remembered verdict repeats the available units of policies with room as the store reported
/// them.
///
/// Checks whose rejections are counted, including those that may lead to a ban, are never remembered: the store has to
/// count them. A banned key is frozen until the ban ends. A verdict to which a slot of a cluster has not contributed is
/// not remembered either.
///
/// # Shadow policies
///
/// A check that is allowed because only its shadow policies have no room is remembered too, if it charged nothing. A
/// shadow policy does not make a denial certain, so a check that an enforced policy denies needs a frozen enforced
/// policy. A check that charged anything is not remembered.
///
/// # Other changes of a count
///
/// A count also changes by a reset, by a loss of data and, on a cluster, by a refund. A reset or a refund by this
/// process forgets the denials of its key at once, including those still in flight ([`DenyCache::epoch`]). A connection
/// to a single server that is lost makes the cache forget all denials, because then the failure policy decides. The
/// cache misses any other change until the denial reaches its longest age: 10 s on a single server ([`MAX_AGE_US`]),
/// 1 s on a cluster ([`MAX_AGE_ON_CLUSTER_US`]).
///
/// Times are those of the local clock. The age of a denial counts from before its check was sent. Its wait is shortened
/// a little ([`DRIFT_DIVISOR`]), because clocks run at different speeds.
#[derive(Debug)]
pub(super) struct DenyCache {
    sets: Box<[Mutex<Set>]>,
    hasher: RandomState,
    /// Number of times that all denials were forgotten.
    epoch: AtomicU64,
    /// The number of denials that have been remembered.
    denials: AtomicU64,
    /// By group: number of times that the denials of the group were forgotten.
    epochs: Box<[AtomicU64]>,
    /// By group: the policies on which its denials depend.
    dependencies: Box<[Dependencies]>,
    /// The longest age of a denial in microseconds, however long its wait is.
    max_age_us: u64,
}

/// The denials of checks whose hashes have the same remainder.
type Set = [Option<Box<Entry>>; WAYS];

/// A remembered denial.
#[derive(Debug)]
struct Entry {
    hash: u64,
    check: Check,
    verdict: Verdict,
    epoch: u64,
    /// When the verdict was received. Its waits count from here.
    received_us: u64,
    /// When the denial ends.
    until_us: u64,
}

/// Number of sets. The cache holds [`SETS`] times [`WAYS`] denials: 8 192, which take at most about 3 MB.
const SETS: usize = 2_048;
/// Number of denials in a set. A new denial replaces the one that ends first.
const WAYS: usize = 4;

/// A group of keys that share an epoch. A reset forgets the denials of the whole group. Of ten thousand keys, two or
/// three share a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyGroup(u16);

/// Number of groups.
const GROUPS: usize = 4_096;

impl KeyGroup {
    fn of_hash(hash: u64) -> Self {
        Self(u16::try_from(hash % GROUPS as u64).unwrap_or(0))
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The hashes of a check, computed once for all uses of the cache.
#[derive(Debug)]
pub(super) struct Fingerprint {
    hash: u64,
    /// The groups of the charges' keys, in order.
    pub(super) groups: SmallVec<[KeyGroup; 4]>,
}

/// The policies of remembered denials, one bit each. Two policies may share a bit; then a denial is forgotten without
/// need.
#[derive(Debug, Default)]
struct Dependencies {
    /// The policies that had room.
    roomy: AtomicU64,
    /// The violated policies.
    spent: AtomicU64,
}

/// The bit of a policy in [`Dependencies`].
fn bit(policy: &Policy) -> u64 {
    1 << (policy.name_hash() % 64)
}

/// The longest age of a denial on a single server, in microseconds. It bounds the effect of lost data and of resets by
/// other processes.
pub(super) const MAX_AGE_US: u64 = 10_000_000;
/// The longest age of a denial on a cluster, in microseconds. It is shorter, because another process may refund the
/// commit that caused the denial.
pub(super) const MAX_AGE_ON_CLUSTER_US: u64 = 1_000_000;

/// The longest age of a denial whose Retry-After other checks may make longer, in microseconds.
const LOOSE_AGE_US: u64 = 1_000_000;

/// The part of a wait that is taken off for the drift of clocks: 1/1 000, twice the rate at which clocks are corrected
/// (500 ppm).
const DRIFT_DIVISOR: u64 = 1_000;

impl DenyCache {
    pub(super) fn new(max_age_us: u64) -> Self {
        Self {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            epoch: AtomicU64::new(0),
            denials: AtomicU64::new(0),
            epochs: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
            dependencies: (0..GROUPS).map(|_| Dependencies::default()).collect(),
            max_age_us,
        }
    }

    /// The hashes of a check, in one pass over its keys.
    pub(super) fn fingerprint(&self, check: &Check) -> Fingerprint {
        let mut fingerprint = Fingerprint { hash: 0, groups: SmallVec::new() };
        for charge in check.charges() {
            let mut hasher = self.hasher.build_hasher();
            charge.key.hash(&mut hasher);
            fingerprint.groups.push(KeyGroup::of_hash(hasher.finish()));
            (charge.policy.name(), charge.cost).hash(&mut hasher);
            fingerprint.hash = fingerprint.hash.rotate_left(1) ^ hasher.finish();
        }
        fingerprint
    }

    /// The denial of `check` at `now_us`, if one is remembered and certain.
    ///
    /// `latest_us` is the latest time that the clock has shown: a denial that has ended stays ended if the clock runs
    /// backwards.
    pub(super) fn get(&self, fingerprint: &Fingerprint, check: &Check, now_us: u64, latest_us: u64) -> Option<Verdict> {
        let hash = fingerprint.hash;
        let set = self.set(hash);
        let entry = set.iter().flatten().find(|entry| entry.hash == hash && have_same_charges(&entry.check, check))?;
        if now_us < entry.received_us || latest_us >= entry.until_us || entry.epoch != self.epoch(fingerprint) {
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

    /// Remembers the verdict on a check that was sent at `sent_us`, if it is a certain denial. `epoch` was read before
    /// the check was sent.
    pub(super) fn put(
        &self,
        fingerprint: &Fingerprint,
        check: &Check,
        verdict: &Verdict,
        epoch: u64,
        sent_us: u64,
        received_us: u64,
    ) {
        let counts = |(charge, outcome): (&Charge, &Outcome)| {
            outcome.ban_us == 0 && (charge.policy.count_rejected() || charge.policy.ban().is_some())
        };
        let counted = check.charges().iter().zip(&verdict.outcomes).any(counts);
        let Some(Certainty { wait_us, is_loose }) = certainty(check, verdict) else { return };
        if verdict.charged(check).next().is_some() || counted || epoch != self.epoch(fingerprint) {
            return;
        }
        let max_age_us = if is_loose { self.max_age_us.min(LOOSE_AGE_US) } else { self.max_age_us };
        let until_us = sent_us + (wait_us - wait_us.div_ceil(DRIFT_DIVISOR)).min(max_age_us);
        if until_us <= received_us {
            return;
        }
        for ((charge, outcome), group) in check.charges().iter().zip(&verdict.outcomes).zip(&fingerprint.groups) {
            let dependencies = &self.dependencies[group.index()];
            let policies = if outcome.fits { &dependencies.roomy } else { &dependencies.spent };
            policies.fetch_or(bit(&charge.policy), Ordering::AcqRel);
        }
        let hash = fingerprint.hash;
        let entry = Entry { hash, check: check.clone(), verdict: verdict.clone(), epoch, received_us, until_us };
        let mut set = self.set(hash);
        let same_check = |slot: &&mut Option<Box<Entry>>| {
            slot.as_ref().is_some_and(|entry| entry.hash == hash && have_same_charges(&entry.check, check))
        };
        let slot = match set.iter_mut().find(same_check) {
            Some(slot) => Some(slot),
            None => set.iter_mut().min_by_key(|slot| slot.as_ref().map_or(0, |entry| entry.until_us)),
        };
        if let Some(slot) = slot {
            *slot = Some(Box::new(entry));
            self.denials.fetch_add(1, Ordering::Release);
        }
    }

    /// The number of denials that have been remembered. While it stays the same, a lookup finds nothing new.
    pub(super) fn denials(&self) -> u64 {
        self.denials.load(Ordering::Acquire)
    }

    /// The epoch of a check, which is read before the check is sent. A denial is not remembered if the epoch has
    /// changed since.
    ///
    /// The epoch is the sum of the counters of the cache and of the check's groups. Each counter only grows, so the sum
    /// stays the same only if no counter has changed.
    pub(super) fn epoch(&self, fingerprint: &Fingerprint) -> u64 {
        let groups = fingerprint.groups.iter().map(|group| self.epochs[group.index()].load(Ordering::Acquire));
        groups.fold(self.epoch.load(Ordering::Acquire), u64::wrapping_add)
    }

    /// The group of a key.
    pub(super) fn group(&self, key: &Key) -> KeyGroup {
        KeyGroup::of_hash(self.hasher.hash_one(key))
    }

    /// Forgets all denials, including those of checks that have been sent and not answered.
    pub(super) fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets the denials of a group, including those of checks that have been sent and not answered.
    pub(super) fn forget_group(&self, group: KeyGroup) {
        self.epochs[group.index()].fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets remembered denials that the verdict on a check contradicts.
    ///
    /// A policy that was charged may have no room left. A policy that had no room and has some now was reset by
    /// another process, or got a refund.
    pub(super) fn forget_contradicted(&self, fingerprint: &Fingerprint, check: &Check, verdict: &Verdict) {
        if self.denials() == 0 {
            return;
        }
        for ((charge, outcome), group) in check.charges().iter().zip(&verdict.outcomes).zip(&fingerprint.groups) {
            let is_peek = charge.cost == 0;
            if is_peek && outcome.available > 0 {
                self.forget_if(*group, &charge.policy, |dependencies| &dependencies.spent);
            } else if !is_peek && verdict.allowed && outcome.fits {
                self.forget_if(*group, &charge.policy, |dependencies| &dependencies.roomy);
            }
        }
    }

    /// Forgets the denials of `group` if one of them depends on `policy`, which is looked up in `policies`.
    fn forget_if(&self, group: KeyGroup, policy: &Policy, policies: impl Fn(&Dependencies) -> &AtomicU64) {
        let dependencies = &self.dependencies[group.index()];
        if policies(dependencies).load(Ordering::Acquire) & bit(policy) != 0 {
            dependencies.roomy.store(0, Ordering::Release);
            dependencies.spent.store(0, Ordering::Release);
            self.forget_group(group);
        }
    }

    fn set(&self, hash: u64) -> MutexGuard<'_, Set> {
        let index = usize::try_from(hash % SETS as u64).unwrap_or(0);
        // Entries are replaced as a whole, so a poisoned lock is usable.
        self.sets[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether two checks have the same charges in the same order.
fn have_same_charges(one: &Check, other: &Check) -> bool {
    let (one, other) = (one.charges(), other.charges());
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| a.cost == b.cost && a.key == b.key && a.policy == b.policy)
}

/// The time for which a denial is certain.
struct Certainty {
    /// Microseconds until the first unit of a frozen policy is free, a ban ends, or another policy is no longer
    /// violated.
    wait_us: u64,
    /// Whether other checks may make the Retry-After longer.
    is_loose: bool,
}

/// Computes for how long a denial is certain. `None` if no violated policy that decides is frozen, because other checks
/// may then change the verdict at any time. In an allowed check that charged nothing, shadow policies decide.
fn certainty(check: &Check, verdict: &Verdict) -> Option<Certainty> {
    let charges = check.charges();
    let mut is_frozen = false;
    let mut certainty =
        Certainty { wait_us: u64::MAX, is_loose: charges.windows(2).any(|pair| pair[0].key != pair[1].key) };
    for (charge, outcome) in charges.iter().zip(&verdict.outcomes) {
        match outcome {
            Outcome { fits: false, available: 0, retry_after_us: Some(_), .. } => {
                // After a ban the store counts denials again, so the check has to be sent.
                let change_us = if outcome.ban_us > 0 { outcome.ban_us } else { outcome.next_us };
                certainty.wait_us = certainty.wait_us.min(change_us);
                is_frozen |= verdict.allowed || !charge.policy.is_shadow();
            }
            Outcome { fits: false, retry_after_us, .. } => {
                certainty.wait_us = certainty.wait_us.min(retry_after_us.unwrap_or(u64::MAX));
                certainty.is_loose = true;
            }
            // A charge that fits and is not committed leaves room. If there is no room, the charge's slot has not
            // answered.
            Outcome { fits: true, available: 0, .. } if charge.cost > 0 => return None,
            Outcome { fits: true, .. } => {}
        }
    }
    is_frozen.then_some(certainty)
}
