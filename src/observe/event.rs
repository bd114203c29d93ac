//! What an observer is told.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::Fingerprint;
use crate::{
    check::{Charge, Check},
    decision::Decision,
    error::{Error, ErrorKind},
    failure::FailurePolicy,
    key::Key,
    policy::Policy,
    verdict::Source,
};

/// A decision on a check. See [`Observer::on_decision`](super::Observer::on_decision).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Decided<'a> {
    /// The decision: allowed or denied, and its [source](Decision::source).
    pub decision: &'a Decision,
    /// How long the check took, all waiting included.
    pub elapsed: Duration,
    check: &'a Check,
}

impl<'a> Decided<'a> {
    pub(super) fn new(check: &'a Check, decision: &'a Decision, elapsed: Duration) -> Self {
        Self { decision, elapsed, check }
    }

    /// What the check owed, policy by policy; also where the store did not judge.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        let standings = self.decision.policies();
        let violated = move |index: usize| standings.get(index).is_some_and(|standing| standing.violated);
        let charges = self.check.charges().iter().enumerate();
        charges.map(move |(index, charge)| ObservedCharge::new(charge, violated(index)))
    }

    /// One word for it: `allowed`, `denied`, `overloaded`, or the failure policy's `open`, `closed` or `local`.
    pub fn outcome(&self) -> &'static str {
        match self.decision.source() {
            Source::Closed => "closed",
            Source::Local => "local",
            Source::Open => "open",
            Source::Overloaded => "overloaded",
            Source::DenyCache | Source::Store if self.decision.is_allowed() => "allowed",
            Source::DenyCache | Source::Store => "denied",
        }
    }

    /// Whether the request passes although the store did not judge it.
    pub fn is_fallback_admit(&self) -> bool {
        self.decision.is_allowed() && !matches!(self.decision.source(), Source::DenyCache | Source::Store)
    }
}

/// One charge, without the key.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ObservedCharge<'a> {
    /// Under which policy.
    pub policy: &'a Policy,
    /// How many units.
    pub cost: u32,
    /// Whether the check was denied because of this policy.
    pub violated: bool,
    key: &'a Key,
}

impl<'a> ObservedCharge<'a> {
    pub(super) fn new(charge: &'a Charge, violated: bool) -> Self {
        let Charge { key, policy, cost } = charge;
        Self { policy, cost: *cost, violated, key }
    }

    /// What tells the key apart from others. Computed here, so that observers without need for it do not pay.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key)
    }
}

/// A check without a verdict. See [`Observer::on_store_failure`](super::Observer::on_store_failure).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct StoreFailure<'a> {
    /// Why; what its `Display` says is for operators and holds no key.
    pub error: &'a Error,
    /// What the middleware makes of it; `None` for a [`Limiter`](crate::Limiter) that is called directly.
    pub failure: Option<FailurePolicy>,
    /// How long it took to find out.
    pub elapsed: Duration,
    check: &'a Check,
}

impl<'a> StoreFailure<'a> {
    pub(super) fn new(check: &'a Check, error: &'a Error, failure: Option<FailurePolicy>, elapsed: Duration) -> Self {
        Self { error, failure, elapsed, check }
    }

    /// One word for the error's kind, as metrics and logs have it.
    pub fn cause(&self) -> &'static str {
        match self.error.kind() {
            ErrorKind::BadKey => "bad_key",
            ErrorKind::Config => "config",
            ErrorKind::Deadline => "deadline",
            ErrorKind::Misconfigured => "misconfigured",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::Unavailable => "unavailable",
        }
    }

    /// What the check owed.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges().iter().map(|charge| ObservedCharge::new(charge, false))
    }
}

/// A call of a store's. See [`Observer::on_batch`](super::Observer::on_batch).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// How many checks shared the call.
    pub checks: usize,
    /// How many charges they had together.
    pub charges: usize,
    /// From sending it to reading the reply, or to giving it up.
    pub elapsed: Duration,
    /// Whether a reply came that could be used.
    pub answered: bool,
}

/// The circuit breaker went from one state to another.
///
/// A store of several [failure domains](crate::store::Store::failure_domains), as on a cluster, has a breaker for each. Then one change stands for all
/// of them: open as long as one is, or else probing as long as one is. Which part it was is not told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BreakerChange {
    /// What it was.
    pub from: BreakerState,
    /// What it is now.
    pub to: BreakerState,
    /// Orders changes: of two, the one with the higher number came later.
    ///
    /// Observers are called without a lock, so threads may report changes in another order than they happened in. To keep
    /// the state, ignore a change whose number is below the highest that you have seen. One sequence numbers the
    /// changes of all breakers in the process, so a gap is no loss.
    pub sequence: u64,
}

impl BreakerChange {
    /// Creates a change that happens now, for stores with a breaker of their own.
    pub fn new(from: BreakerState, to: BreakerState) -> Self {
        static LATEST: AtomicU64 = AtomicU64::new(0);
        Self { from, to, sequence: LATEST.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// The states of a circuit breaker.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Checks go to the store.
    Closed,
    /// None does: the failure policy decides at once.
    Open,
    /// One check finds out whether the store is back.
    Probing,
}

impl BreakerState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::Probing];

    /// The state in lower case, as metrics and logs have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Probing => "probing",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Decided<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decision, elapsed, check: _ } = self;
        f.debug_struct("Decided")
            .field("decision", decision)
            .field("elapsed", elapsed)
            .field("charges", &self.charges().collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for ObservedCharge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, cost, violated, key: _ } = self;
        f.debug_struct("ObservedCharge")
            .field("policy", &policy.name())
            .field("cost", cost)
            .field("violated", violated)
            .field("fingerprint", &self.fingerprint())
            .finish()
    }
}

impl fmt::Debug for StoreFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, failure, elapsed, check: _ } = self;
        f.debug_struct("StoreFailure")
            .field("error", error)
            .field("failure", failure)
            .field("elapsed", elapsed)
            .field("charges", &self.charges().collect::<Vec<_>>())
            .finish()
    }
}
