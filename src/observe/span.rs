//! One check, one call of the store or one lease under observation.

use std::sync::Arc;

use tokio::time::Instant;

#[cfg(feature = "redis")]
use crate::observe::other::Batch;
use crate::observe::{
    AbandonmentEvent, DecisionEvent, Event, EventKind, FailureEffect, NearLimits, ObservedKey, ObservedRequest,
    Observer, Other, StoreFailure, other::LeaseChange, request::StoredRequest,
};
use crate::{check::Check, decision::Decision, error::Error, key::Key, policy::Policy};

/// A check under observation, from sending it to its decision. Made only if there is an observer, because it reads the
/// clock and copies the check (a decision takes the charges out of it).
///
/// A span that is dropped while the check waits for its verdict reports the check as abandoned.
pub(crate) struct CheckSpan {
    observer: Arc<dyn Observer>,
    check: Check,
    /// The request of a layer.
    request: Option<StoredRequest>,
    /// Whether observers see the check. Of one that they do not see, they see a failure that its caller does not get.
    is_seen: bool,
    waits: bool,
    started: Instant,
}

impl CheckSpan {
    /// Not inlined, to keep the path without an observer short.
    #[cold]
    #[inline(never)]
    pub(crate) fn start(
        observer: &Arc<dyn Observer>,
        check: &Check,
        request: Option<ObservedRequest<'_>>,
    ) -> Box<Self> {
        Box::new(Self {
            observer: Arc::clone(observer),
            check: check.clone(),
            request: request.map(ObservedRequest::to_stored),
            is_seen: true,
            waits: false,
            started: Instant::now(),
        })
    }

    /// Sets whether observers see the check. They do not see a check of the limiter itself, but the call for which it
    /// is made.
    pub(crate) fn seen(mut self: Box<Self>, is_seen: bool) -> Box<Self> {
        self.is_seen = is_seen;
        self
    }

    /// Records that the check waits for the store.
    pub(crate) fn waits(&mut self) {
        self.waits = true;
    }

    /// Sets what the only charge costs: a charge of as much as fits knows it with its decision.
    pub(crate) fn set_cost(&mut self, cost: u64) {
        self.check.set_cost(cost);
    }

    /// Reports the decision, if there is one.
    #[cold]
    #[inline(never)]
    pub(crate) fn end(mut self, decision: Option<&Decision>) {
        self.waits = false;
        if let Some(decision) = decision.filter(|_| self.is_reported()) {
            let request = self.request.as_ref().map(StoredRequest::get);
            let event = DecisionEvent::new(&self.check, decision, self.started.elapsed(), request);
            self.observer.on_event(&Event(EventKind::Decision(event)));
        }
    }

    /// Reports a decision with a verdict, and the keys that it has brought near a limit.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_with_verdict(self, decision: &Decision, near_limits: &NearLimits) {
        if self.is_seen {
            let keys = self.check.groups().map(|group| &group[0].key);
            near_limits.report(&*self.observer, keys, decision);
        }
        self.end(Some(decision));
    }

    /// Reports that the store gave no verdict, and what the check gets instead.
    pub(crate) fn failed(&self, error: &Error, effect: FailureEffect) {
        // The caller of a check that is not seen reports an error that it gets.
        if self.is_seen || matches!(effect, FailureEffect::Share | FailureEffect::Shadow) {
            let event = StoreFailure::new(&self.check, error, effect, self.started.elapsed());
            self.observer.on_event(&Event(EventKind::StoreFailure(event)));
        }
    }

    fn is_reported(&self) -> bool {
        self.is_seen && self.check.charges().iter().any(|charge| charge.cost > 0)
    }
}

impl Drop for CheckSpan {
    fn drop(&mut self) {
        // While the thread unwinds, a second panic in the observer would abort the process.
        if self.waits && self.is_reported() && !std::thread::panicking() {
            let event = AbandonmentEvent::new(&self.check, self.started.elapsed());
            self.observer.on_event(&Event::other(Other::Abandonment(event)));
        }
    }
}

/// One call of the store under observation. A span that is dropped without [`end`](Self::end) reports a call without an
/// answer.
#[cfg(feature = "redis")]
pub(crate) struct BatchSpan {
    observer: Arc<dyn Observer>,
    checks: usize,
    charges: usize,
    answered: bool,
    started: Instant,
}

#[cfg(feature = "redis")]
impl BatchSpan {
    /// Begins a call. `charges` yields the number of charges of each check.
    pub(crate) fn start(observer: Arc<dyn Observer>, charges: impl Iterator<Item = usize>) -> Self {
        let (checks, charges) = charges.fold((0, 0), |(checks, sum), charges| (checks + 1, sum + charges));
        Self { observer, checks, charges, answered: false, started: Instant::now() }
    }

    pub(crate) fn end(mut self, answered: bool) {
        self.answered = answered;
    }
}

#[cfg(feature = "redis")]
impl Drop for BatchSpan {
    fn drop(&mut self) {
        // While the thread unwinds, a second panic in the observer would abort the process.
        if std::thread::panicking() {
            return;
        }
        let Self { checks, charges, answered, .. } = *self;
        let batch = Batch { checks, charges, elapsed: self.started.elapsed(), answered };
        self.observer.on_event(&Event::other(Other::Batch(batch)));
    }
}

/// A lease under observation: reports its start, and its end when it is dropped. No lock may be held then.
pub(crate) struct LeaseSpan {
    observer: Arc<dyn Observer>,
    key: Key,
    policy: Policy,
}

impl LeaseSpan {
    pub(crate) fn start(observer: &Arc<dyn Observer>, key: &Key, policy: &Policy) -> Self {
        let span = Self { observer: Arc::clone(observer), key: key.clone(), policy: policy.clone() };
        span.report(true);
        span
    }

    fn report(&self, has_started: bool) {
        let change = LeaseChange { policy: &self.policy, key: ObservedKey(&self.key), has_started };
        self.observer.on_event(&Event::other(Other::LeaseChange(change)));
    }
}

impl Drop for LeaseSpan {
    fn drop(&mut self) {
        self.report(false);
    }
}
