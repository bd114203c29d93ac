//! The events of a check: its decision, its failure, or its end before either.

use std::{fmt, time::Duration};

use crate::check::{Charge, Check};
use crate::decision::{Decision, PolicyDecision};
use crate::error::{Error, ErrorKind, OneLine};
use crate::observe::{FailureEffect, ObservedKey, ObservedRequest};
use crate::{policy::Policy, verdict::Source};

/// A decision on a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionEvent<'a> {
    pub(super) decision: &'a Decision,
    /// How long the check took, including all waiting.
    pub(super) elapsed: Duration,
    /// The HTTP method of the request. `None` if no layer has sent the check.
    pub(super) method: Option<&'static str>,
    pub(super) route: Option<&'a str>,
    check: ObservedCheck<'a>,
}

impl<'a> DecisionEvent<'a> {
    pub(super) fn new(
        check: &'a Check,
        decision: &'a Decision,
        elapsed: Duration,
        request: Option<ObservedRequest<'a>>,
    ) -> Self {
        let (method, route) = (request.map(|request| request.method), request.and_then(|request| request.route));
        Self { decision, elapsed, method, route, check: ObservedCheck(check) }
    }

    /// The request; `None` if no layer has sent the check.
    pub(super) fn request(&self) -> Option<ObservedRequest<'a>> {
        self.method.map(|method| ObservedRequest { method, route: self.route })
    }

    /// The charges of the check, in order. Also present without a verdict.
    pub(super) fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges(self.decision.policies())
    }

    pub(super) fn check(&self) -> ObservedCheck<'a> {
        self.check
    }

    /// The outcome in one word: `allowed`, `denied`, `blocked`, `overloaded`, or the failure policy's `open`, `closed`
    /// or `local`.
    pub(super) fn outcome(&self) -> &'static str {
        match self.decision.source() {
            Source::Closed => "closed",
            Source::Local => "local",
            Source::Open => "open",
            Source::Overloaded => "overloaded",
            Source::Policy if !self.decision.is_allowed() => "blocked",
            Source::DenyCache | Source::Lease | Source::Policy | Source::Store if self.decision.is_allowed() => {
                "allowed"
            }
            Source::DenyCache
            | Source::Lease
            | Source::Policy
            | Source::Queue
            | Source::Store
            | Source::WaitersFull => "denied",
        }
    }

    /// Whether the request passes without a verdict.
    #[cfg(feature = "metrics")]
    pub(super) fn is_fallback_admit(&self) -> bool {
        let is_judged =
            matches!(self.decision.source(), Source::DenyCache | Source::Lease | Source::Policy | Source::Store);
        self.decision.is_allowed() && !is_judged
    }
}

impl fmt::Display for DecisionEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A check was decided in {:?}: outcome={}", self.elapsed, self.outcome())?;
        self.check.fmt_charges(f)
    }
}

/// A check without a verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreFailure<'a> {
    /// The cause. Its `Display` is for operators and contains no key.
    pub(super) error: &'a Error,
    /// Time from sending the check to its failure.
    pub(super) elapsed: Duration,
    /// What the check gets instead of a verdict.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only `Tracing` names it"))]
    pub(super) effect: FailureEffect,
    check: ObservedCheck<'a>,
}

impl<'a> StoreFailure<'a> {
    pub(super) fn new(check: &'a Check, error: &'a Error, effect: FailureEffect, elapsed: Duration) -> Self {
        Self { error, elapsed, effect, check: ObservedCheck(check) }
    }

    /// The same failure with another cause: while the breaker is open, what has opened it.
    #[cfg(feature = "tracing")]
    pub(super) fn caused_by(self, error: &'a Error) -> Self {
        Self { error, ..self }
    }

    /// The error's kind in one word, for metrics and logs.
    pub(super) fn cause(&self) -> &'static str {
        match self.error.kind() {
            ErrorKind::BadKey => "bad_key",
            ErrorKind::InvalidCall => "config",
            ErrorKind::Deadline => "deadline",
            ErrorKind::StoreMisconfigured => "misconfigured",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::Unavailable => "unavailable",
        }
    }

    /// The charges of the check.
    #[cfg(feature = "tracing")]
    pub(super) fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges(&[])
    }

    pub(super) fn check(&self) -> ObservedCheck<'a> {
        self.check
    }
}

impl fmt::Display for StoreFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A check got no verdict in {:?}: {}:", self.elapsed, OneLine(self.error))?;
        self.check.fmt_charges(f)
    }
}

/// A check that was dropped before its verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AbandonmentEvent<'a> {
    /// How long the check had waited when it was dropped.
    pub(super) elapsed: Duration,
    check: ObservedCheck<'a>,
}

impl<'a> AbandonmentEvent<'a> {
    pub(super) fn new(check: &'a Check, elapsed: Duration) -> Self {
        Self { elapsed, check: ObservedCheck(check) }
    }

    /// The charges of the check. Whether they were charged is unknown.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(super) fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges(&[])
    }

    pub(super) fn check(&self) -> ObservedCheck<'a> {
        self.check
    }
}

impl fmt::Display for AbandonmentEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A check was dropped after {:?}, before its verdict:", self.elapsed)?;
        self.check.fmt_charges(f)
    }
}

/// One charge of an observed check, without the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedCharge<'a> {
    pub(super) policy: &'a Policy,
    pub(super) key: ObservedKey<'a>,
    /// The cost in units.
    pub(super) cost: u64,
    /// Whether the check was denied because of this policy.
    pub(super) violated: bool,
    /// Whether the cost did not fit under a [shadow](Policy::with_shadow) policy, which would deny it if it were
    /// enforced.
    #[cfg_attr(
        not(any(feature = "metrics", feature = "tracing")),
        expect(dead_code, reason = "only `Metrics` and `Tracing` report it")
    )]
    pub(super) would_deny: bool,
}

impl<'a> ObservedCharge<'a> {
    /// `standing` is where the policy stands after the check; `None` without a verdict.
    fn new(charge: &'a Charge, standing: Option<&PolicyDecision>) -> Self {
        let Charge { key, policy, cost, .. } = charge;
        let violated = standing.is_some_and(|standing| standing.violated);
        let would_deny = standing.is_some_and(|standing| standing.would_deny);
        Self { policy, key: ObservedKey(key), cost: *cost, violated, would_deny }
    }
}

/// The check of an event. Its `Debug` lists the name of the policy, the cost and the fingerprint of each charge.
#[derive(Clone, Copy)]
pub(super) struct ObservedCheck<'a>(&'a Check);

impl<'a> ObservedCheck<'a> {
    fn fmt_charges(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, charge) in self.0.charges().iter().enumerate() {
            let (comma, key) = (if place > 0 { "," } else { "" }, ObservedKey(&charge.key));
            write!(f, "{comma} policy={:?} key={key} cost={}", charge.policy.name(), charge.cost)?;
        }
        Ok(())
    }

    /// The charges, with where their policies stand after the check; `standings` is empty without a verdict.
    pub(super) fn charges(self, standings: &'a [PolicyDecision]) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.0.groups().enumerate().map(move |(index, group)| {
            let standing = standings.get(index);
            let is_named = |charge: &&Charge| standing.is_some_and(|named| named.policy.name() == charge.policy.name());
            // Of alternatives, the one that the decision names; without a verdict, the first one.
            let charge = group.iter().find(is_named).unwrap_or(&group[0]);
            ObservedCharge::new(charge, standing)
        })
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
