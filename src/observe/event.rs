//! What an observer is told.

use std::{fmt, time::Duration};

use crate::{
    check::{Charge, Check},
    decision::Decision,
    error::{Error, ErrorKind},
    failure::FailurePolicy,
    key::Key,
    observe::fingerprint::Fingerprint,
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

/// A check that was given up before its verdict. See [`Observer::on_abandoned`](super::Observer::on_abandoned).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Abandoned<'a> {
    /// How long it had waited.
    pub elapsed: Duration,
    check: &'a Check,
}

impl<'a> Abandoned<'a> {
    pub(super) fn new(check: &'a Check, elapsed: Duration) -> Self {
        Self { elapsed, check }
    }

    /// What the check owed. Whether it was charged is not known.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges().iter().map(|charge| ObservedCharge::new(charge, false))
    }
}

/// A key was reset, or was meant to be. See [`Observer::on_reset`](super::Observer::on_reset).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Reset<'a> {
    /// Under which policy.
    pub policy: &'a Policy,
    /// Whether there was anything to forget; `None` if the store failed.
    pub found: Option<bool>,
    /// Why it was not, if the store failed; what its `Display` says is for operators and holds no key.
    pub error: Option<&'a Error>,
    /// How long it took.
    pub elapsed: Duration,
    key: &'a Key,
}

impl<'a> Reset<'a> {
    pub(crate) fn new(key: &'a Key, policy: &'a Policy, result: &'a Result<bool, Error>, elapsed: Duration) -> Self {
        Self { policy, found: result.as_ref().ok().copied(), error: result.as_ref().err(), elapsed, key }
    }

    /// What tells the key apart from others.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key)
    }
}

/// A [`MemoryStore`](crate::MemoryStore) that is full has dropped a live count. See
/// [`Observer::on_evicted`](super::Observer::on_evicted).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Evicted<'a> {
    /// Under which policy it was counted. A count of denials has the policy's name with `(ban)` behind it.
    pub policy: &'a Policy,
    /// How many units it had spent, which its key may now spend once more.
    pub spent: u32,
}

impl<'a> Evicted<'a> {
    pub(crate) fn new(policy: &'a Policy, spent: u32) -> Self {
        Self { policy, spent }
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

impl fmt::Debug for Abandoned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elapsed, check: _ } = self;
        f.debug_struct("Abandoned")
            .field("elapsed", elapsed)
            .field("charges", &self.charges().collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for Reset<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, found, error, elapsed, key: _ } = self;
        f.debug_struct("Reset")
            .field("policy", &policy.name())
            .field("found", found)
            .field("error", error)
            .field("elapsed", elapsed)
            .field("fingerprint", &self.fingerprint())
            .finish()
    }
}
