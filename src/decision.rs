//! The outcome of a check.

use std::{fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{check::Check, policy::Policy, store::Verdict};

/// The outcome of a check: allowed or denied, and where every policy stands.
///
/// The middleware puts it into the extensions of the request, where handlers read it, and of the response, where outer
/// layers do.
#[derive(Clone)]
pub struct Decision(Arc<Inner>);

/// Shared, for the request, the response and the layer's future have it each.
struct Inner {
    allowed: bool,
    source: Source,
    time_us: u64,
    policies: SmallVec<[PolicyDecision; 1]>,
}

/// Where a [`Decision`] comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// The store could not answer and the failure policy refuses.
    Closed,
    /// The process remembered a denial of the store that still holds, see
    /// `RedisStoreBuilder::deny_cache`.
    DenyCache,
    /// The store could not answer and the failure policy lets pass.
    Open,
    /// The store judged.
    Store,
}

/// Where one policy stands after a check. All waits count from the decision.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicyDecision {
    /// The policy.
    pub policy: Policy,
    /// What the check owed under it.
    pub cost: u32,
    /// Whether the check was denied because of this policy.
    pub violated: bool,
    /// The largest cost that would pass now.
    pub available: u32,
    /// Until the same cost passes if nobody else spends; `None` if it was not refused or can never pass.
    pub retry_after: Option<Duration>,
    /// Until more becomes available; zero if nothing is spent.
    pub next: Duration,
    /// Until all of it is available again.
    pub reset: Duration,
}

impl PolicyDecision {
    /// Whether the cost is above what can ever pass at once.
    pub fn never_fits(&self) -> bool {
        self.cost > self.policy.capacity()
    }
}

impl Decision {
    pub(crate) fn new(check: Check, verdict: Verdict) -> Self {
        let Verdict { allowed, source, time_us, outcomes } = verdict;
        let policies = check.into_charges().zip(outcomes).map(|(charge, outcome)| PolicyDecision {
            policy: charge.policy,
            cost: charge.cost,
            violated: !outcome.fits,
            available: outcome.available,
            retry_after: outcome.retry_after_us.map(Duration::from_micros),
            next: Duration::from_micros(outcome.next_us),
            reset: Duration::from_micros(outcome.reset_us),
        });
        Self(Arc::new(Inner { allowed, source, time_us, policies: policies.collect() }))
    }

    pub(crate) fn without_store(allowed: bool, source: Source) -> Self {
        Self(Arc::new(Inner { allowed, source, time_us: 0, policies: SmallVec::new() }))
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.0.allowed
    }

    /// Where the decision comes from.
    pub fn source(&self) -> Source {
        self.0.source
    }

    /// Every policy of the check, in order. Empty if the store did not judge.
    pub fn policies(&self) -> &[PolicyDecision] {
        &self.0.policies
    }

    /// The policies because of which the check was denied.
    pub fn violated(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.0.policies.iter().filter(|policy| policy.violated)
    }

    /// The largest cost that would pass now under all policies; `None` if the store did not judge.
    pub fn available(&self) -> Option<u32> {
        self.0.policies.iter().map(|policy| policy.available).min()
    }

    /// When the same request passes if nobody else spends: exact for the sliding window log.
    ///
    /// `None` if it was allowed, if it can never pass, or if the store did not judge.
    pub fn retry_after(&self) -> Option<Duration> {
        // One hopeless policy makes the whole request hopeless.
        let mut waits = self.violated().map(|policy| policy.retry_after);
        let first = waits.next()??;
        waits.try_fold(first, |longest, wait| wait.map(|wait| longest.max(wait)))
    }

    /// The store's time of the decision, in microseconds since the Unix epoch; `None` if the store did not judge.
    pub fn time_us(&self) -> Option<u64> {
        matches!(self.0.source, Source::Store | Source::DenyCache).then_some(self.0.time_us)
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { allowed, source, time_us, policies } = &*self.0;
        f.debug_struct("Decision")
            .field("allowed", allowed)
            .field("source", source)
            .field("time_us", time_us)
            .field("policies", policies)
            .finish()
    }
}
