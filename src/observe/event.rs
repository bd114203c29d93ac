//! Events about checks, calls and counts.

use std::{fmt, time::Duration};

use crate::{
    check::{Charge, Check},
    decision::{Decision, PolicyDecision},
    error::{Error, ErrorKind},
    failure::FailurePolicy,
    key::Key,
    observe::{effects::FailureEffect, fingerprint::Fingerprint, request::ObservedRequest},
    policy::Policy,
    verdict::Source,
};

/// A decision on a check. See [`Observer::on_decision`](super::Observer::on_decision).
///
/// # Examples
///
/// ```
/// use tollgate::observe::{Decided, Observer};
///
/// /// Prints which keys are denied, and by which policies.
/// struct PrintDenials;
///
/// impl Observer for PrintDenials {
///     fn on_decision(&self, decided: &Decided<'_>) {
///         for charge in decided.charges().filter(|charge| charge.violated) {
///             println!("{} denies {} a cost of {}", charge.policy.name(), charge.fingerprint(), charge.cost);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Decided<'a> {
    /// The decision: allowed or denied, and its [source](Decision::source).
    pub decision: &'a Decision,
    /// How long the check took, including all waiting.
    pub elapsed: Duration,
    /// The method and the route of the request; `None` if no layer has sent the check.
    pub request: Option<ObservedRequest<'a>>,
    check: &'a Check,
}

impl<'a> Decided<'a> {
    pub(super) fn new(
        check: &'a Check,
        decision: &'a Decision,
        elapsed: Duration,
        request: Option<ObservedRequest<'a>>,
    ) -> Self {
        Self { decision, elapsed, request, check }
    }

    /// The charges of the check, in order. Also present without a verdict.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        let standings = self.decision.policies();
        let charges = self.check.charges().iter().enumerate();
        charges.map(move |(index, charge)| ObservedCharge::new(charge, standings.get(index)))
    }

    /// The outcome in one word: `allowed`, `denied`, `overloaded`, or the failure policy's `open`, `closed` or `local`.
    pub fn outcome(&self) -> &'static str {
        match self.decision.source() {
            Source::Closed => "closed",
            Source::Local => "local",
            Source::Open => "open",
            Source::Overloaded => "overloaded",
            Source::DenyCache | Source::Lease | Source::Store if self.decision.is_allowed() => "allowed",
            Source::DenyCache | Source::Lease | Source::Queue | Source::Store | Source::WaitersFull => "denied",
        }
    }

    /// Whether the request passes without a verdict.
    pub fn is_fallback_admit(&self) -> bool {
        let is_judged = matches!(self.decision.source(), Source::DenyCache | Source::Lease | Source::Store);
        self.decision.is_allowed() && !is_judged
    }
}

/// One charge of an observed check, without the key.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ObservedCharge<'a> {
    /// The policy of the charge.
    pub policy: &'a Policy,
    /// The cost in units.
    pub cost: u32,
    /// Whether the check was denied because of this policy.
    pub violated: bool,
    /// Whether the cost did not fit under a [shadow](Policy::with_shadow) policy, which would deny it if it were
    /// enforced.
    pub would_deny: bool,
    /// Whether the cost is [held](crate::Limiter::hold) until it is settled.
    pub is_hold: bool,
    pub(super) key: &'a Key,
}

impl<'a> ObservedCharge<'a> {
    /// `standing` is where the policy stands after the check; `None` without a verdict.
    pub(super) fn new(charge: &'a Charge, standing: Option<&PolicyDecision>) -> Self {
        let Charge { key, policy, cost, hold } = charge;
        let violated = standing.is_some_and(|standing| standing.violated);
        let would_deny = standing.is_some_and(|standing| standing.would_deny);
        Self { policy, cost: *cost, violated, would_deny, is_hold: hold.is_some(), key }
    }

    /// The fingerprint of the key. Computed on demand, because most observers do not need it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key)
    }
}

/// A check without a verdict. See [`Observer::on_store_failure`](super::Observer::on_store_failure).
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{ErrorKind, observe::{Observer, StoreFailure}};
///
/// /// Counts the failures that an operator has to correct, for an alert.
/// #[derive(Default)]
/// struct SetupFailures(AtomicU64);
///
/// impl Observer for SetupFailures {
///     fn on_store_failure(&self, failure: &StoreFailure<'_>) {
///         if failure.error.kind() == ErrorKind::Misconfigured {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct StoreFailure<'a> {
    /// The cause. Its `Display` is for operators and contains no key.
    pub error: &'a Error,
    /// The failure policy of the middleware; `None` for a [`Limiter`](crate::Limiter) that is called directly.
    pub failure: Option<FailurePolicy>,
    /// Time from sending the check to its failure.
    pub elapsed: Duration,
    /// What the check gets instead of a verdict, which may be another effect than that of `failure`.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only `Tracing` names it"))]
    pub(super) effect: FailureEffect,
    check: &'a Check,
}

impl<'a> StoreFailure<'a> {
    pub(super) fn new(
        check: &'a Check,
        error: &'a Error,
        failure: Option<FailurePolicy>,
        effect: FailureEffect,
        elapsed: Duration,
    ) -> Self {
        Self { error, failure, elapsed, effect, check }
    }

    /// The error's kind in one word, for metrics and logs.
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

    /// Whether all policies of the check are [shadow](Policy::with_shadow) policies, so that it passes in any case.
    pub fn is_shadow(&self) -> bool {
        self.check.is_shadow()
    }

    /// The charges of the check.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges().iter().map(|charge| ObservedCharge::new(charge, None))
    }
}

/// A call of a store. See [`Observer::on_batch`](super::Observer::on_batch).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// Number of checks that shared the call.
    pub checks: usize,
    /// Number of charges of these checks.
    pub charges: usize,
    /// Time from sending the call to its reply, or to dropping it.
    pub elapsed: Duration,
    /// Whether the store sent a usable reply.
    pub answered: bool,
}

/// A check that was dropped before its verdict. See [`Observer::on_abandoned`](super::Observer::on_abandoned).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Abandoned<'a> {
    /// How long the check had waited when it was dropped.
    pub elapsed: Duration,
    check: &'a Check,
}

impl<'a> Abandoned<'a> {
    pub(super) fn new(check: &'a Check, elapsed: Duration) -> Self {
        Self { elapsed, check }
    }

    /// The charges of the check. Whether they were charged is unknown.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges().iter().map(|charge| ObservedCharge::new(charge, None))
    }
}

/// The end of a [`Limiter::reset`](crate::Limiter::reset): the key was reset, or the store failed. See
/// [`Observer::on_reset`](super::Observer::on_reset).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Reset<'a> {
    /// The policy whose count was reset.
    pub policy: &'a Policy,
    /// Whether there was anything to forget; `None` if the store failed.
    pub found: Option<bool>,
    /// The error, if the store failed. Its `Display` is for operators and contains no key.
    pub error: Option<&'a Error>,
    /// How long the reset took.
    pub elapsed: Duration,
    key: &'a Key,
}

impl<'a> Reset<'a> {
    pub(crate) fn new(key: &'a Key, policy: &'a Policy, result: &'a Result<bool, Error>, elapsed: Duration) -> Self {
        Self { policy, found: result.as_ref().ok().copied(), error: result.as_ref().err(), elapsed, key }
    }

    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key)
    }
}

/// A live count that a full [`MemoryStore`](crate::MemoryStore) has dropped. See
/// [`Observer::on_evicted`](super::Observer::on_evicted).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Evicted<'a> {
    /// The policy of the count. If the count is of denials, its name ends in `(ban)`.
    pub policy: &'a Policy,
    /// Units that the count had recorded. Its key may now spend them again.
    pub spent: u32,
}

impl<'a> Evicted<'a> {
    pub(crate) fn new(policy: &'a Policy, spent: u32) -> Self {
        Self { policy, spent }
    }
}

impl fmt::Debug for Decided<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decision, elapsed, request, check: _ } = self;
        f.debug_struct("Decided")
            .field("decision", decision)
            .field("elapsed", elapsed)
            .field("request", request)
            .field("charges", &self.charges().collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for ObservedCharge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, cost, violated, would_deny, is_hold, key: _ } = self;
        f.debug_struct("ObservedCharge")
            .field("policy", &policy.name())
            .field("cost", cost)
            .field("violated", violated)
            .field("would_deny", would_deny)
            .field("is_hold", is_hold)
            .field("fingerprint", &self.fingerprint())
            .finish()
    }
}

impl fmt::Debug for StoreFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, failure, elapsed, effect: _, check: _ } = self;
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
