//! The events of a check: its decision, its failure, or its end before either.

use std::{fmt, time::Duration};

use crate::{
    check::{Charge, Check},
    decision::{Decision, PolicyDecision},
    error::{Error, ErrorKind},
    failure::FailurePolicy,
    observe::{FailureEffect, Fingerprint, ObservedKey, ObservedRequest},
    policy::Policy,
    verdict::Source,
};

/// A decision on a check.
///
/// # Examples
///
/// ```
/// use tollgate::observe::{self, Event};
///
/// // Prints which keys are denied, and by which policies.
/// let print_denials = observe::from_fn(|event| {
///     let Event::Decision(decided) = event else { return };
///     for charge in decided.charges().filter(|charge| charge.violated) {
///         println!("{} denies {} a cost of {}", charge.policy.name(), charge.fingerprint(), charge.cost);
///     }
/// });
/// # let _ = print_denials;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DecisionEvent<'a> {
    /// The decision: allowed or denied, and its [source](Decision::source).
    pub decision: &'a Decision,
    /// How long the check took, including all waiting.
    pub elapsed: Duration,
    /// The method and the route of the request; `None` if no layer has sent the check.
    pub request: Option<ObservedRequest<'a>>,
    check: ObservedCheck<'a>,
}

impl<'a> DecisionEvent<'a> {
    pub(super) fn new(
        check: &'a Check,
        decision: &'a Decision,
        elapsed: Duration,
        request: Option<ObservedRequest<'a>>,
    ) -> Self {
        Self { decision, elapsed, request, check: ObservedCheck(check) }
    }

    /// The charges of the check, in order. Also present without a verdict.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges(self.decision.policies())
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

/// A check without a verdict.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{ErrorKind, observe::{Event, Observer}};
///
/// /// Counts the failures that an operator has to correct, for an alert.
/// #[derive(Default)]
/// struct SetupFailures(AtomicU64);
///
/// impl Observer for SetupFailures {
///     fn on_event(&self, event: &Event<'_>) {
///         if let Event::StoreFailure(failure) = event
///             && failure.error.kind() == ErrorKind::Misconfigured
///         {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
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
    check: ObservedCheck<'a>,
}

impl<'a> StoreFailure<'a> {
    pub(super) fn new(
        check: &'a Check,
        error: &'a Error,
        failure: Option<FailurePolicy>,
        effect: FailureEffect,
        elapsed: Duration,
    ) -> Self {
        Self { error, failure, elapsed, effect, check: ObservedCheck(check) }
    }

    /// The same failure with another cause: while the breaker is open, what has opened it.
    #[cfg(feature = "tracing")]
    pub(super) fn caused_by(self, error: &'a Error) -> Self {
        Self { error, ..self }
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
        self.check.0.is_shadow()
    }

    /// The charges of the check.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges(&[])
    }
}

/// A check that was dropped before its verdict.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AbandonmentEvent<'a> {
    /// How long the check had waited when it was dropped.
    pub elapsed: Duration,
    check: ObservedCheck<'a>,
}

impl<'a> AbandonmentEvent<'a> {
    pub(super) fn new(check: &'a Check, elapsed: Duration) -> Self {
        Self { elapsed, check: ObservedCheck(check) }
    }

    /// The charges of the check. Whether they were charged is unknown.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges(&[])
    }
}

/// One charge of an observed check, without the key.
#[derive(Clone, Copy, Debug)]
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
    pub(super) key: ObservedKey<'a>,
}

impl<'a> ObservedCharge<'a> {
    /// `standing` is where the policy stands after the check; `None` without a verdict.
    fn new(charge: &'a Charge, standing: Option<&PolicyDecision>) -> Self {
        let Charge { key, policy, cost, hold } = charge;
        let violated = standing.is_some_and(|standing| standing.violated);
        let would_deny = standing.is_some_and(|standing| standing.would_deny);
        Self { policy, cost: *cost, violated, would_deny, is_hold: hold.is_some(), key: ObservedKey(key) }
    }

    /// The fingerprint of the key. Computed on demand, because most observers do not need it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key.0)
    }
}

/// The check of an event. Its `Debug` lists the name of the policy, the cost and the fingerprint of each charge.
#[derive(Clone, Copy)]
struct ObservedCheck<'a>(&'a Check);

impl<'a> ObservedCheck<'a> {
    /// The charges, with where their policies stand after the check; `standings` is empty without a verdict.
    fn charges(self, standings: &'a [PolicyDecision]) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        let charges = self.0.charges().iter().enumerate();
        charges.map(move |(index, charge)| ObservedCharge::new(charge, standings.get(index)))
    }
}

impl fmt::Debug for ObservedCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let charges = self.0.charges().iter();
        f.debug_list()
            .entries(charges.map(|charge| (charge.policy.name(), charge.cost, ObservedKey(&charge.key))))
            .finish()
    }
}
