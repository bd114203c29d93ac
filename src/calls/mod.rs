//! Calls: the one way to ask a store.
//!
//! A [`Call`] takes a permit of the breaker, waits for the store until the deadline, and reports its outcome to the
//! breaker. `outcome` turns a verdict or an error into a decision, with the local fallback and for the observers. While
//! the store may lack what instances have admitted during an outage, `share` keeps a check to the instance's share and
//! charges the store for it.
//!
//! A policy without holds does not look for what is held. If the policy of a key changes while the process runs, from
//! one with a lease to one without, the units of open blocks must not be given away a second time. So such checks are
//! sent under their policy with holds, as long as the store may hold a block of this process, or owe the charge of one
//! that has expired.

mod by_hand;
mod call;
mod outcome;
mod share;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, fmt, hash::BuildHasher, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::breaker::{Breakers, CallOutcome, Permit};
use crate::check::{Charge, Check, open_hold::OpenHold};
use crate::hold::{HoldChange, HoldId, SettleAnswer};
use crate::observe::{CheckSpan, NearLimits, Notices, Observer};
use crate::policy::{HoldSettings, Policy};
use crate::store::{Answer, CountChange, Pending, Store, failure_domain_of};
use crate::verdict::{Source, Verdict};
use crate::{
    decision::Decision, error::Error, failure::FailurePolicy, fallback::Fallback, key::Key, runtime::random::FastState,
};

pub(crate) use self::call::{Call, CheckCall, NO_TIMERS};

/// A store with all that stands between it and its callers. Clones share it.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Writes what the limiter reports by itself; `None` if the limiter is quiet.
    pub(crate) notices: Option<Arc<Notices>>,
    /// Receives warnings and refusals: the observer, the notices, or both.
    pub(crate) listener: Option<Arc<dyn Observer>>,
    /// `None` for a store that is always available.
    pub(crate) breakers: Option<Arc<Breakers>>,
    pub(crate) fallback: Option<Arc<Fallback>>,
    /// The keys that were reported to observers as near a limit.
    pub(crate) near_limits: Arc<NearLimits>,
    /// The counts of which the store may hold units for this process.
    pub(crate) held: Arc<HeldCounts>,
}

/// The purpose of a check: to charge, or to peek.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Purpose {
    kind: Kind,
    /// Whether the local fallback judges if the store gives no verdict.
    uses_fallback: bool,
}

/// What becomes of the units of a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// All are charged or none.
    Check,
    /// The decision says whether a cost of 1 would pass. The store is asked with a cost of 0, which charges nothing.
    Peek,
    /// The decision says whether the costs would pass.
    PeekAtCosts,
    /// As many are charged as fit.
    UpTo,
}

impl Purpose {
    pub(crate) const CHECK: Self = Self { kind: Kind::Check, uses_fallback: false };
    pub(crate) const PEEK: Self = Self { kind: Kind::Peek, uses_fallback: false };
    pub(crate) const PEEK_AT_COSTS: Self = Self { kind: Kind::PeekAtCosts, uses_fallback: false };
    pub(crate) const UP_TO: Self = Self { kind: Kind::UpTo, uses_fallback: false };

    pub(crate) fn with_fallback(self) -> Self {
        Self { uses_fallback: true, ..self }
    }

    pub(crate) fn uses_fallback(self) -> bool {
        self.uses_fallback
    }

    pub(crate) fn is_peek(self) -> bool {
        matches!(self.kind, Kind::Peek | Kind::PeekAtCosts)
    }

    /// Whether the decision is about a cost of 1, which the check does not have.
    pub(crate) fn is_peek_at_one(self) -> bool {
        self.kind == Kind::Peek
    }

    /// Whether as many units are charged as fit.
    pub(crate) fn is_up_to(self) -> bool {
        self.kind == Kind::UpTo
    }
}

impl From<FailurePolicy> for Purpose {
    fn from(policy: FailurePolicy) -> Self {
        Self { uses_fallback: policy == FailurePolicy::Local, ..Self::CHECK }
    }
}

impl Calls {
    pub(crate) fn new(store: impl Store) -> Self {
        let breakers = |breaker| Arc::new(Breakers::new(breaker, store.deadline(), store.failure_domains()));
        Self {
            observer: None,
            notices: None,
            listener: None,
            breakers: store.breaker().map(breakers),
            fallback: None,
            near_limits: Arc::default(),
            held: Arc::default(),
            store: Arc::new(store),
        }
    }

    /// Starts the span of a check that no layer has sent, if there is an observer.
    #[inline]
    pub(crate) fn start_span(&self, check: &Check) -> Option<Box<CheckSpan>> {
        self.observer.as_ref().map(|observer| CheckSpan::start(observer, check, None))
    }

    /// Forgets a count. Returns whether there was one.
    pub(crate) async fn reset(&self, key: &Key, policy: &Policy) -> Result<bool, Error> {
        self.answered(key, self.store.reset(key, policy)).await
    }

    /// Changes a count by hand.
    pub(crate) async fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Result<u64, Error> {
        self.answered(key, self.store.change_count(key, policy, change)).await
    }

    /// Changes a hold in the store.
    pub(crate) async fn change_hold(&self, hold: &OpenHold, change: HoldChange) -> Result<SettleAnswer, Error> {
        self.answered(&hold.key, self.store.change_hold(hold, change)).await
    }

    /// Waits for an answer of the store about `key`.
    async fn answered<T: Send + 'static>(&self, key: &Key, answer: Answer<T>) -> Result<T, Error> {
        match answer {
            Answer::Ready(result) => result,
            Answer::Pending(pending) => Call::new(pending).answer(self, key).await,
        }
    }

    /// As [`Check::may_hold_in_part`]. A store of one node makes all of a check or nothing.
    pub(crate) fn may_hold_in_part(&self, check: &Check) -> bool {
        self.store.failure_domains() > 1 && check.may_hold_in_part()
    }

    /// Asks the store for a check without a share of its instance.
    async fn verdict(self: &Arc<Self>, check: &Check) -> Result<Verdict, Error> {
        match self.store.check(check) {
            Answer::Ready(result) => result,
            Answer::Pending(pending) => CheckCall::new(pending).answer(self, check, check, Purpose::CHECK).await,
        }
    }

    /// Asks the breaker whether a call for `key` may be sent, unless the store asks the breaker of each failure domain
    /// itself. A call that the store answers without waiting does not ask the breaker.
    fn admit<T>(&self, key: Option<&Key>, pending: &Pending<T>) -> Result<Option<Permit>, Error> {
        if pending.takes_over(self.breakers.as_ref()) {
            return Ok(None);
        }
        self.breakers.as_ref().map(|breakers| breakers.admit(self.failure_domain_of(key))).transpose()
    }

    /// Reports the outcome of a call to the breaker.
    fn settle(&self, permit: Option<Permit>, outcome: CallOutcome) {
        if let (Some(breakers), Some(permit)) = (&self.breakers, permit) {
            breakers.settle(permit, outcome);
        }
    }

    pub(crate) fn failure_domain_of(&self, key: Option<&Key>) -> usize {
        key.map_or(0, |key| failure_domain_of(&*self.store, key))
    }

    /// Reports the near limits that an allowed check has reached. One check may charge for several callers, and only
    /// the whole of it shows what it has reached.
    pub(crate) fn report_near_limits(&self, check: Option<&Check>, decision: &Decision) {
        if let (Some(observer), Some(check)) = (&self.observer, check) {
            let keys = check.groups().map(|group| &group[0].key);
            self.near_limits.report(&**observer, keys, decision);
        }
    }

    /// Ends the outage that the notices have reported, if there is one and the store has answered.
    #[inline]
    fn notice_answer(&self, verdict: &Verdict) {
        if let Some(notices) = &self.notices
            && notices.awaits_answer()
            && verdict.source == Source::Store
        {
            notices.answered();
        }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, breakers, fallback, .. } = self;
        f.debug_struct("Limiter")
            .field("store", store)
            .field("breakers", breakers)
            .field("fallback", fallback)
            .finish_non_exhaustive()
    }
}

/// The counts of which the store may hold blocks of this process, by the hash of their keys and policies.
#[derive(Debug, Default)]
pub(crate) struct HeldCounts {
    noted: Mutex<Noted>,
    hasher: FastState,
    /// The number of counts, so that a process without blocks takes no lock.
    number: AtomicUsize,
}

#[derive(Debug, Default)]
struct Noted {
    counts: HashMap<u64, HeldCount, FastState>,
    /// When expired counts were looked for.
    swept: Option<Instant>,
}

/// Two counts of one hash are taken for one. Their checks ask for holds a little longer than they have to.
#[derive(Debug)]
struct HeldCount {
    holds: HoldSettings,
    /// The blocks by their ids, because an end may come twice and late; and when each has certainly expired, and what
    /// was charged for it has left its window.
    blocks: SmallVec<[(HoldId, Instant); MOST_BLOCKS]>,
    /// The latest such time of older blocks, whose ids are forgotten.
    others_until: Option<Instant>,
}

impl HeldCount {
    fn is_held(&self, now: Instant) -> bool {
        self.blocks.iter().map(|(_, until)| *until).chain(self.others_until).any(|until| now < until)
    }
}

/// The most counts, about 6 MB: one for each lease that may have blocks, and some whose blocks are of unknown fate.
const MOST: usize = 20_000;
/// The most blocks of a count that are noted by their ids: as many as a lease usually has on their way and open.
const MOST_BLOCKS: usize = 4;
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

impl HeldCounts {
    /// Notes that a block is requested. Returns whether there was room for the note: a block without one could be
    /// overlooked, so it must not be requested.
    #[must_use]
    pub(crate) fn request(&self, block: &OpenHold, now: Instant) -> bool {
        let Some(holds) = block.policy.holds().copied() else { return false };
        let hash = self.hash(&block.key, &block.policy);
        let mut noted = self.lock();
        if noted.swept.is_none_or(|swept| now >= swept + SWEEP_INTERVAL) {
            noted.swept = Some(now);
            noted.counts.retain(|_, count| count.is_held(now));
        }
        if noted.counts.len() >= MOST && !noted.counts.contains_key(&hash) {
            return false;
        }
        let new = || HeldCount { holds, blocks: SmallVec::new(), others_until: None };
        let count = noted.counts.entry(hash).or_insert_with(new);
        if count.blocks.len() == MOST_BLOCKS {
            let (_, until) = count.blocks.remove(0);
            count.others_until = count.others_until.max(Some(until));
        }
        let until = now.checked_add(longest_count(&block.policy, &holds)).unwrap_or(now);
        count.blocks.push((block.id(), until));
        self.number.store(noted.counts.len(), Ordering::Release);
        true
    }

    /// Notes that the store does not hold a block, or not any more.
    pub(crate) fn end(&self, block: &OpenHold) {
        let hash = self.hash(&block.key, &block.policy);
        let mut noted = self.lock();
        if let Some(count) = noted.counts.get_mut(&hash) {
            count.blocks.retain(|(id, _)| *id != block.id());
            if count.blocks.is_empty() && count.others_until.is_none() {
                noted.counts.remove(&hash);
            }
        }
        self.number.store(noted.counts.len(), Ordering::Release);
    }

    /// The check that sees the blocks of this process, if policies of `check` have no holds and would overlook them.
    #[inline]
    pub(crate) fn check_beside(&self, check: &Check) -> Option<Check> {
        if self.number.load(Ordering::Acquire) > 0 { self.with_holds(check) } else { None }
    }

    #[cold]
    fn with_holds(&self, check: &Check) -> Option<Check> {
        let now = Instant::now();
        // Nearly all checks end here: their counts have no blocks.
        check.charges().iter().any(|charge| self.policy_with_holds(charge, now).is_some()).then(|| {
            Check::of_distinct(check.charges().iter().map(|charge| match self.policy_with_holds(charge, now) {
                Some(policy) => Charge { policy, ..charge.clone() },
                None => charge.clone(),
            }))
        })
    }

    /// The policy with holds that has to judge a charge, if the charge's own has none and blocks of its count are held.
    fn policy_with_holds(&self, Charge { key, policy, .. }: &Charge, now: Instant) -> Option<Policy> {
        if policy.holds().is_some() {
            return None;
        }
        let holds = self.lock().counts.get(&self.hash(key, policy)).filter(|count| count.is_held(now))?.holds;
        // A policy with counted denials cannot have holds.
        policy.clone().with_holds(holds).validated().ok()
    }

    fn hash(&self, key: &Key, policy: &Policy) -> u64 {
        // The hash of the key has a random seed, so no client can choose keys that collide.
        self.hasher.hash_one(key) ^ policy.name_hash().rotate_left(32)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        // Each change is one step, so a poisoned lock is usable.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a block counts at most from its request: until it expires, and then for a window, in which a bucket fills.
fn longest_count(policy: &Policy, holds: &HoldSettings) -> Duration {
    let windows = policy.capacity().div_ceil(policy.limit()).max(2);
    holds.ttl().saturating_add(Duration::from_micros(policy.window_us().saturating_mul(windows)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold;

    /// A count without a note would be overlooked by checks under the same policy without holds.
    #[test]
    fn counts_of_blocks_are_not_forgotten_for_others_while_they_may_be_held() {
        let (held, now) = (HeldCounts::default(), Instant::now());
        let plain = Policy::per_minute("p", 100).unwrap();
        let leased = plain.clone().with_lease(10);
        let key = |number: usize| Key::from(format!("k{number}"));
        let block = |number: usize| OpenHold::new(key(number), leased.clone(), hold::random_id());
        let blocks: Vec<OpenHold> = (0..MOST).map(block).collect();
        assert!(blocks.iter().all(|block| held.request(block, now)));
        assert!(!held.request(&block(MOST), now), "no room");
        assert!(held.request(&block(0), now), "its count is noted already");
        let is_noted_in = |held: &HeldCounts, number| held.check_beside(&Check::new(key(number), &plain, 1)).is_some();
        let is_noted = |number| is_noted_in(&held, number);
        assert!((0..MOST).all(is_noted) && !is_noted(MOST));

        (0..2).for_each(|_| held.end(&blocks[0]));
        assert!(is_noted(0), "another block of the count is held");
        held.end(&blocks[1]);
        assert!(held.request(&block(MOST), now), "a count has ended");
        let later = now + Duration::from_secs(300);
        assert!(held.request(&block(1), later), "all blocks have expired and left their windows");
        assert_eq!(held.lock().counts.len(), 1, "expired counts are forgotten");

        // Ten blocks of unknown fate are held, and then one of a known end.
        let held = HeldCounts::default();
        assert!((0..10).all(|_| held.request(&block(2), now)));
        let last = block(2);
        assert!(held.request(&last, now + SWEEP_INTERVAL));
        held.end(&last);
        assert!(is_noted_in(&held, 2), "the ten are noted");
        assert_eq!(held.lock().counts.values().map(|count| count.blocks.len()).sum::<usize>(), MOST_BLOCKS - 1);
    }
}
