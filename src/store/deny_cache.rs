//! The deny cache: remembers denials that hold until time frees a unit.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::check::{Charge, Check};
use crate::verdict::{Source, Verdict};
use crate::{key::Key, policy::Policy, runtime::random::RandomState, store::certain_wait::certain_wait};

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
/// the denial. If another process does, the wait is wrong until the denial is asked again. A remembered verdict repeats
/// the available units of policies with room as the store reported them.
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
/// A count also changes by a reset or a change by hand, by a loss of data and, on a cluster, by a refund. A change by
/// this process forgets the denials of its key at once, including those still in flight ([`DenyCache::epoch`]). Except
/// on a cluster, the cache forgets all denials as soon as a check gets no connection, or its connection breaks, because
/// then the failure policy decides.
///
/// To notice changes by other processes, a remembered denial is asked again once a second ([`ASK_AGAIN_US`]): one check
/// goes to the store, in a task that goes on if its caller goes away, and the others are denied from memory meanwhile.
/// If the store denies it again, its verdict replaces the remembered one; if not, the denial is forgotten. If the store
/// gives no verdict, the denial holds until its longest age ([`MAX_AGE_US`]). So a change is noticed within a second,
/// and a flood on one key costs one call of the store a second.
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
    /// When the next check is sent to the store.
    ask_at_us: u64,
    /// When the denial ends.
    until_us: u64,
}

/// What the cache knows about a check.
#[derive(Debug)]
pub(super) enum Remembered {
    /// The check is denied.
    Denied(Verdict),
    /// The check is denied, but the store has not been asked for a second. This check has to be sent; for another
    /// second all others are denied.
    AskAgain,
    /// No denial is certain.
    Nothing,
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

/// The state of the deny cache when a check is sent. It decides later whether a denial may be remembered.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) fingerprint: Fingerprint,
    pub(super) epoch: u64,
    /// The number of denials that had been remembered.
    pub(super) denials: u64,
    pub(super) sent_us: u64,
    /// Whether the check asks a remembered denial again.
    pub(super) asks_again: bool,
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

/// The time after which a remembered denial is asked again, in microseconds.
const ASK_AGAIN_US: u64 = 1_000_000;
/// The longest age of a denial in microseconds, however long its wait is. It is only reached if the store gives no
/// verdict when the denial is asked again.
const MAX_AGE_US: u64 = 10_000_000;

/// The part of a wait that is taken off for the drift of clocks: 1/1 000, twice the rate at which clocks are corrected
/// (500 ppm).
const DRIFT_DIVISOR: u64 = 1_000;

impl DenyCache {
    pub(super) fn new() -> Self {
        Self {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            epoch: AtomicU64::new(0),
            denials: AtomicU64::new(0),
            epochs: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
            dependencies: (0..GROUPS).map(|_| Dependencies::default()).collect(),
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

    /// What is remembered about `check` at `now_us`. Among checks at the same time, one asks again.
    ///
    /// `latest_us` is the latest time that the clock has shown: a denial that has ended stays ended if the clock runs
    /// backwards.
    pub(super) fn look_up(&self, fingerprint: &Fingerprint, check: &Check, now_us: u64, latest_us: u64) -> Remembered {
        let mut set = self.set(fingerprint.hash);
        let Some(entry) = self.certain(&mut set, fingerprint, check, now_us, latest_us) else {
            return Remembered::Nothing;
        };
        if now_us >= entry.ask_at_us {
            entry.ask_at_us = now_us + ASK_AGAIN_US;
            return Remembered::AskAgain;
        }
        Remembered::Denied(entry.verdict_at(now_us))
    }

    /// Lets the next check ask a remembered denial again, because the check that was to ask is not sent.
    pub(super) fn ask_soon(&self, check: &Check) {
        let hash = self.fingerprint(check).hash;
        let mut set = self.set(hash);
        let slot = set.iter_mut().find(|slot| is_of(slot, hash, check));
        slot.into_iter().flatten().for_each(|entry| entry.ask_at_us = 0);
    }

    /// The denial of a check that has not been sent yet, if it was remembered since the check was made.
    pub(super) fn denied_since(&self, ticket: &Ticket, check: &Check, now_us: u64, latest_us: u64) -> Option<Verdict> {
        let mut set = self.set(ticket.fingerprint.hash);
        let entry = self.certain(&mut set, &ticket.fingerprint, check, now_us, latest_us)?;
        // An older denial is the one that the check asks again.
        (entry.received_us >= ticket.sent_us).then(|| entry.verdict_at(now_us))
    }

    /// The entry of a check whose denial is certain at `now_us`.
    fn certain<'a>(
        &self,
        set: &'a mut Set,
        fingerprint: &Fingerprint,
        check: &Check,
        now_us: u64,
        latest_us: u64,
    ) -> Option<&'a mut Entry> {
        let entry = set.iter_mut().find(|slot| is_of(slot, fingerprint.hash, check))?.as_mut()?;
        let is_certain =
            now_us >= entry.received_us && latest_us < entry.until_us && entry.epoch == self.epoch(fingerprint);
        is_certain.then_some(entry)
    }

    /// Remembers the verdict on a check, if it is a certain denial; `None` is a verdict that may change at any time.
    /// Any other verdict ends the denial that the check has asked again.
    pub(super) fn put(&self, ticket: &Ticket, check: &Check, verdict: Option<&Verdict>, received_us: u64) {
        let &Ticket { ref fingerprint, epoch, sent_us, asks_again, .. } = ticket;
        let hash = fingerprint.hash;
        let certain = verdict.and_then(|verdict| Some((verdict, certain_wait(check, verdict)?)));
        let certain = certain
            .map(|(verdict, wait_us)| (verdict, sent_us + (wait_us - wait_us.div_ceil(DRIFT_DIVISOR)).min(MAX_AGE_US)));
        let Some((verdict, until_us)) = certain.filter(|(_, until_us)| *until_us > received_us) else {
            if asks_again && let Some(slot) = self.set(hash).iter_mut().find(|slot| is_of(slot, hash, check)) {
                *slot = None;
            }
            return;
        };
        if epoch != self.epoch(fingerprint) {
            return;
        }
        for ((charge, outcome), group) in check.charges().iter().zip(&verdict.outcomes).zip(&fingerprint.groups) {
            let dependencies = &self.dependencies[group.index()];
            let policies = if outcome.fits { &dependencies.roomy } else { &dependencies.spent };
            policies.fetch_or(bit(&charge.policy), Ordering::AcqRel);
        }
        let ask_at_us = sent_us + ASK_AGAIN_US;
        let (check, verdict) = (check.clone(), verdict.clone());
        let entry = Entry { hash, check, verdict, epoch, received_us, ask_at_us, until_us };
        let mut set = self.set(hash);
        let slot = match set.iter_mut().find(|slot| is_of(slot, hash, &entry.check)) {
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

impl Entry {
    /// The denial at `now_us`.
    fn verdict_at(&self, now_us: u64) -> Verdict {
        let passed = now_us - self.received_us;
        let mut verdict = self.verdict.clone();
        verdict.source = Source::DenyCache;
        verdict.time_us += passed;
        for outcome in &mut verdict.outcomes {
            outcome.retry_after_us = outcome.retry_after_us.map(|wait| wait.saturating_sub(passed));
            outcome.next_us = outcome.next_us.saturating_sub(passed);
            outcome.reset_us = outcome.reset_us.saturating_sub(passed);
            outcome.ban_us = outcome.ban_us.saturating_sub(passed);
        }
        verdict
    }
}

/// Whether a slot has the denial of `check`.
fn is_of(slot: &Option<Box<Entry>>, hash: u64, check: &Check) -> bool {
    slot.as_ref().is_some_and(|entry| entry.hash == hash && have_same_charges(&entry.check, check))
}

/// Whether two charges cost the same, and a ban denies both or neither.
fn have_same_cost(one: &Charge, other: &Charge) -> bool {
    one.cost == other.cost && one.is_free_request == other.is_free_request
}

/// Whether two checks have the same charges in the same order.
fn have_same_charges(one: &Check, other: &Check) -> bool {
    let (one, other) = (one.charges(), other.charges());
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(a, b)| have_same_cost(a, b) && a.place == b.place && a.key == b.key && a.policy == b.policy)
}
