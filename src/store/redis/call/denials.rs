//! The deny cache of a store, and the clock that ends its entries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use crate::clock::{Clock, SystemClock};
pub(crate) use crate::store::deny_cache::Ticket;
use crate::store::deny_cache::{DenyCache, KeyGroup, Remembered};
use crate::{check::Check, key::Key, verdict::Verdict};

/// The denials that a store remembers; none if the deny cache is off.
pub(crate) struct Denials {
    cache: Option<DenyCache>,
    clock: Option<Arc<dyn Clock>>,
    /// The latest local time so far. A user's clock may run backwards.
    latest_us: AtomicU64,
    /// Whether a lost connection leaves the denials in place.
    outlive_connections: bool,
}

/// The result of a lookup.
pub(crate) enum Lookup {
    /// A remembered denial holds.
    Denied(Verdict),
    /// The check has to be sent. The ticket is `None` if denials are not remembered.
    Unknown(Option<Ticket>),
}

/// The groups of several keys, in the order of the keys.
pub(crate) type KeyGroups = SmallVec<[KeyGroup; 4]>;

impl Denials {
    pub(crate) fn new(cache: Option<DenyCache>, clock: Option<Arc<dyn Clock>>, outlive_connections: bool) -> Self {
        Self { cache, clock, latest_us: AtomicU64::new(0), outlive_connections }
    }

    /// Looks up the denial of a check that is about to be sent.
    pub(crate) fn look_up(&self, check: &Check) -> Lookup {
        let Some(cache) = &self.cache else { return Lookup::Unknown(None) };
        let (fingerprint, now_us) = (cache.fingerprint(check), self.now_us());
        let asks_again = match cache.look_up(&fingerprint, check, now_us, self.latest_us(now_us)) {
            Remembered::Denied(denial) => return Lookup::Denied(denial),
            Remembered::AskAgain => true,
            Remembered::Nothing => false,
        };
        let (epoch, denials) = (cache.epoch(&fingerprint), cache.denials());
        Lookup::Unknown(Some(Ticket { fingerprint, epoch, denials, sent_us: now_us, asks_again }))
    }

    /// The denial of a check that was remembered after the check was made.
    pub(crate) fn denied_since(&self, check: &Check, ticket: &Ticket) -> Option<Verdict> {
        let cache = self.cache.as_ref().filter(|cache| cache.denials() != ticket.denials)?;
        let now_us = self.now_us();
        cache.denied_since(ticket, check, now_us, self.latest_us(now_us))
    }

    /// Remembers the verdict on a whole check, if it is a denial that is certain to hold for a while; `None` is a
    /// verdict that may change at any time. Any other verdict ends the denial that the check has asked again.
    pub(crate) fn remember(&self, check: &Check, ticket: &Ticket, verdict: Option<&Verdict>) {
        if let Some(cache) = &self.cache {
            cache.put(ticket, check, verdict, self.now_us());
        }
    }

    /// Forgets the denials that the verdict on a check contradicts.
    pub(crate) fn forget_contradicted(&self, check: &Check, ticket: &Ticket, verdict: &Verdict) {
        if let Some(cache) = &self.cache {
            cache.forget_contradicted(&ticket.fingerprint, check, verdict);
        }
    }

    /// Forgets all denials when a connection is lost, because Redis may have lost the counts.
    ///
    /// On a cluster they stay: the loss of one master must not send the denied checks of other masters to Redis.
    pub(crate) fn connection_lost(&self) {
        if let Some(cache) = self.cache.as_ref().filter(|_| !self.outlive_connections) {
            cache.forget();
        }
    }

    /// Forgets all denials, because Redis has forgotten the counts.
    pub(crate) fn forget_all(&self) {
        if let Some(cache) = &self.cache {
            cache.forget();
        }
    }

    /// The group of `key`; empty if the deny cache is off.
    pub(crate) fn group_of(&self, key: &Key) -> KeyGroups {
        self.cache.iter().map(|cache| cache.group(key)).collect()
    }

    /// Forgets the denials of some groups now and when the guard is dropped.
    pub(crate) fn forget(&self, groups: KeyGroups) -> ForgetGuard<'_> {
        let guard = ForgetGuard { denials: self, groups };
        guard.forget();
        guard
    }

    /// The current time of the clock that ends denials: the user's clock, or else the system clock.
    fn now_us(&self) -> u64 {
        self.clock.as_ref().map_or_else(|| SystemClock.now_us(), |clock| clock.now_us())
    }

    /// The latest time that the clock has shown.
    fn latest_us(&self, now_us: u64) -> u64 {
        if self.clock.is_none() {
            // The system clock never runs backwards.
            return now_us;
        }
        self.latest_us.fetch_max(now_us, Ordering::Relaxed).max(now_us)
    }
}

/// A remembered denial that a check asks again.
pub(crate) struct RememberedDenial {
    denials: Arc<Denials>,
    check: Check,
}

impl RememberedDenial {
    pub(crate) fn new(denials: &Arc<Denials>, check: &Check) -> Self {
        Self { denials: Arc::clone(denials), check: check.clone() }
    }

    /// Lets the next check ask, because this one is not sent.
    pub(super) fn ask_soon(&self) {
        if let Some(cache) = &self.denials.cache {
            cache.ask_soon(&self.check);
        }
    }
}

impl fmt::Debug for RememberedDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberedDenial").field("check", &self.check).finish_non_exhaustive()
    }
}

/// Forgets the denials of some groups when it is dropped. See [`Denials::forget`].
pub(crate) struct ForgetGuard<'a> {
    denials: &'a Denials,
    groups: KeyGroups,
}

impl ForgetGuard<'_> {
    fn forget(&self) {
        if let Some(cache) = &self.denials.cache {
            self.groups.iter().for_each(|group| cache.forget_group(*group));
        }
    }
}

impl Drop for ForgetGuard<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::{
        ManualClock,
        policy::Policy,
        store::redis::call::{
            outgoing::{Charges, Outgoing, Request, Step},
            progress::Progress,
        },
        verdict::{Outcome, Source},
    };

    /// What a store remembers so far, a check of two charges, and its denial, which the first of them causes.
    fn denied() -> (Denials, Check, Verdict) {
        let (policy, clock) = (Policy::per_minute("p", 10).unwrap(), Arc::new(ManualClock::default()));
        let spent = Outcome { fits: false, available: 0, retry_after_us: Some(9), next_us: 9, reset_us: 9, ban_us: 0 };
        let outcomes = [spent, Outcome { fits: true, available: 9, ..spent }].into_iter().collect();
        let denied = Verdict { allowed: false, source: Source::Store, time_us: 0, outcomes };
        let check = Check::new("a", &policy, 1).and("b", &policy, 1);
        (Denials::new(Some(DenyCache::new()), Some(clock), false), check, denied)
    }

    /// The ticket of a check that is sent. `None` if it is denied at once.
    fn sent(denials: &Denials, check: &Check) -> Option<Ticket> {
        match denials.look_up(check) {
            Lookup::Denied(_) => None,
            Lookup::Unknown(ticket) => ticket,
        }
    }

    #[test]
    fn a_denial_that_may_have_been_judged_before_a_reset_does_not_outlive_it() {
        let (denials, check, denied) = denied();
        let before = sent(&denials, &check).unwrap();
        let reset = denials.forget(denials.group_of(&check.charges()[0].key));
        let during = sent(&denials, &check).unwrap();
        denials.remember(&check, &before, Some(&denied));
        assert!(sent(&denials, &check).is_some());
        denials.remember(&check, &during, Some(&denied));
        assert!(sent(&denials, &check).is_none());
        drop(reset);
        assert!(sent(&denials, &check).is_some());
        denials.remember(&check, &during, Some(&denied));
        assert!(sent(&denials, &check).is_some());
    }

    #[test]
    fn a_check_that_waits_learns_of_a_denial_of_the_whole_check_and_of_none_of_a_part() {
        let (denials, check, denied) = denied();
        let keys = check.charges().iter().map(|charge| charge.key.clone()).collect();
        let ticket = sent(&denials, &check);
        let whole = Request::whole(Arc::new(Outgoing::new(check.clone(), keys, Progress::new(false), ticket)));
        let (outgoing, charges) = (Arc::clone(&whole.outgoing), Charges::Some(smallvec![0]));
        let part = Request { outgoing, charges, step: Step::Evaluate };
        part.remember(&denials, &denied);
        assert!(whole.denied_since(&denials).is_none() && sent(&denials, &check).is_some());
        whole.remember(&denials, &denied);
        assert!(whole.denied_since(&denials).is_some() && part.denied_since(&denials).is_none());
    }
}
