//! The events of a check: its decision, its failure, or its end before either.

use std::{fmt, time::Duration};

use crate::{
    check::{Charge, Check},
    decision::{Decision, PolicyDecision},
    error::{Error, ErrorKind},
    observe::{FailureEffect, ObservedKey, ObservedRequest},
    policy::Policy,
    verdict::Source,
};

/// A decision on a check.
///
/// The method and the route have few values, so they can be labels of metrics: a client cannot make them up.
///
/// # Examples
///
/// ```
/// use tollgate::observe::{self, Event};
///
/// // Prints which routes refuse requests, and which policies deny which keys.
/// let print_denials = observe::from_fn(|event| {
///     let Event::Decision(decided) = event else { return };
///     if let (false, Some(method)) =
///         (decided.decision.is_allowed(), decided.method)
///     {
///         let route = decided.route.unwrap_or("unmatched");
///         println!("{method} {route}: {}", decided.outcome());
///     }
///     for charge in decided.charges().filter(|charge| charge.violated) {
///         println!("{} denies {}", charge.policy.name(), charge.key);
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
    /// The HTTP method of the request; `other` for a method that RFC 9110 and RFC 5789 do not define. `None` if no
    /// layer has sent the check.
    pub method: Option<&'static str>,
    /// The template that axum's router has matched (`/users/{id}`); without one, the path of the
    /// [entry](crate::RateLimitLayer::route) of the layer that covers the request (`/mcp/{*rest}`). `None` if there is
    /// neither, and if no layer has sent the check. Never the path that the client has sent.
    pub route: Option<&'a str>,
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
    #[cfg(feature = "metrics")]
    pub(super) fn is_fallback_admit(&self) -> bool {
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
///             && failure.error.kind() == ErrorKind::StoreMisconfigured
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
    /// Time from sending the check to its failure.
    pub elapsed: Duration,
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
    pub fn cause(&self) -> &'static str {
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
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges(&[])
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
    pub(super) fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges(&[])
    }
}

impl fmt::Display for AbandonmentEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A check was dropped after {:?}, before its verdict:", self.elapsed)?;
        for (place, charge) in self.charges().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma} policy={:?} key={} cost={}", charge.policy.name(), charge.key, charge.cost)?;
        }
        Ok(())
    }
}

/// One charge of an observed check, without the key.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ObservedCharge<'a> {
    /// The policy of the charge.
    pub policy: &'a Policy,
    /// The key.
    pub key: ObservedKey<'a>,
    /// The cost in units.
    pub cost: u64,
    /// Whether the check was denied because of this policy.
    pub violated: bool,
    /// Whether the cost did not fit under a [shadow](Policy::with_shadow) policy, which would deny it if it were
    /// enforced.
    pub would_deny: bool,
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
