//! The data of each kind of event, for the observers of this crate.

use std::{fmt, time::Duration};

use crate::decision::{Decision, PolicyDecision};
use crate::observe::other::{LeaseChange, Other};
use crate::observe::{BreakerState, DecisionEvent, ObservedKey, RefusalEvent, StoreFailure, Warning};
use crate::observe::{check_event::ObservedCheck, request::ObservedRequest};
use crate::{error::Error, policy::Policy};

/// What an event is, with its data.
#[derive(Clone, Debug)]
pub(crate) enum EventKind<'a> {
    Decision(DecisionEvent<'a>),
    StoreFailure(StoreFailure<'a>),
    BreakerChange(BreakerChange),
    Refusal(RefusalEvent<'a>),
    WouldRefuse(RefusalEvent<'a>),
    NearLimit(NearLimit<'a>),
    HoldEnd(EndedHold<'a>),
    Warning(Warning),
    Other(Other<'a>),
}

/// A change of the breaker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakerChange {
    pub(super) from: BreakerState,
    pub(super) to: BreakerState,
    pub(super) sequence: u64,
}

/// A key that has come near the limit of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NearLimit<'a> {
    pub(super) policy: &'a Policy,
    pub(super) key: ObservedKey<'a>,
    /// Units that the key has spent.
    pub(super) spent: u64,
}

/// A hold of this process that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedHold<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) key: ObservedKey<'a>,
    /// Units that were held.
    pub(crate) held: u64,
    /// Units that the end was to charge.
    pub(crate) actual: u64,
    /// How the hold has ended, in one word of the table of `Event`.
    pub(crate) end: &'static str,
}

impl<'a> EventKind<'a> {
    /// The name, the outcome, the time and the line.
    pub(super) fn parts(&self) -> (&'static str, &'static str, Option<Duration>, &dyn fmt::Display) {
        match self {
            Self::Decision(decided) => ("decision", decided.outcome(), Some(decided.elapsed), decided),
            Self::StoreFailure(failure) => ("store_failure", failure.cause(), Some(failure.elapsed), failure),
            Self::BreakerChange(change) => ("breaker_change", change.to.as_str(), None, change),
            Self::Refusal(refusal) => ("refusal", refusal.cause(), None, refusal),
            Self::WouldRefuse(refusal) => ("would_refuse", refusal.cause(), None, refusal),
            Self::NearLimit(near) => ("near_limit", "near", None, near),
            Self::HoldEnd(ended) => ("hold_end", ended.end, None, ended),
            Self::Warning(warning) => ("warning", warning.cause(), None, warning),
            Self::Other(other) => other.parts(),
        }
    }

    pub(super) fn decision(&self) -> Option<&'a Decision> {
        if let Self::Decision(decided) = self { Some(decided.decision) } else { None }
    }

    pub(super) fn error(&self) -> Option<&'a Error> {
        if let Self::StoreFailure(failure) = self { Some(failure.error) } else { None }
    }

    pub(super) fn warning(&self) -> Option<&Warning> {
        if let Self::Warning(warning) = self { Some(warning) } else { None }
    }

    pub(super) fn request(&self) -> Option<ObservedRequest<'a>> {
        match self {
            Self::Decision(decided) => decided.request(),
            Self::Refusal(refusal) | Self::WouldRefuse(refusal) => Some(refusal.request()),
            _ => None,
        }
    }

    pub(super) fn charges(&self) -> impl Iterator<Item = (ObservedKey<'a>, &'a Policy, u64)> + use<'a> {
        let one = match self {
            Self::NearLimit(NearLimit { key, policy, spent }) => Some((*key, *policy, *spent)),
            Self::HoldEnd(EndedHold { key, policy, held, .. }) => Some((*key, *policy, *held)),
            Self::Other(Other::LeaseChange(LeaseChange { key, policy, .. })) => {
                Some((*key, *policy, policy.lease().unwrap_or(0)))
            }
            _ => None,
        };
        // Of alternatives, one: the policy that the decision names.
        let check = self.check().into_iter().flat_map(|(check, standings)| check.charges(standings));
        check.map(|charge| (charge.key, charge.policy, charge.cost)).chain(one)
    }

    /// The check of the event, and where its policies stand after it.
    fn check(&self) -> Option<(ObservedCheck<'a>, &'a [PolicyDecision])> {
        match self {
            Self::Decision(decided) => Some((decided.check(), decided.decision.policies())),
            Self::StoreFailure(failure) => Some((failure.check(), &[])),
            Self::Other(Other::Abandonment(abandoned)) => Some((abandoned.check(), &[])),
            _ => None,
        }
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        match (self, name) {
            (Self::BreakerChange(change), "sequence") => Some(change.sequence),
            (Self::HoldEnd(ended), "actual") => Some(ended.actual),
            (Self::HoldEnd(ended), "held") => Some(ended.held),
            (Self::NearLimit(near), "spent") => Some(near.spent),
            _ => None,
        }
    }
}

impl fmt::Display for BreakerChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, sequence } = self;
        write!(f, "The breaker changed: from={} to={} sequence={sequence}", from.as_str(), to.as_str())
    }
}

impl fmt::Display for NearLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, key, spent, capacity) = (self.policy.name(), self.key, self.spent, self.policy.capacity());
        write!(f, "A key is near its limit: policy={policy:?} key={key} spent={spent} capacity={capacity}")
    }
}

impl fmt::Display for EndedHold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, key, held, actual, end } = self;
        let policy = policy.name();
        write!(f, "A hold ended: policy={policy:?} key={key} held={held} actual={actual} end={end}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check::Check, error::ErrorKind, key::Key, observe::FailureEffect, verdict::Source};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_event_has_its_name_outcome_time_and_units_and_one_line_without_the_key() {
        let alice = Key::from("alice");
        let (key, policy) = (ObservedKey(&alice), &Policy::per_minute("p", 9).unwrap().with_lease(4));
        let check = Check::new(alice.clone(), policy, 2);
        let (decision, error) =
            (Decision::without_store(true, Source::Open), Error::new(ErrorKind::Unavailable, "away"));
        let charge = format!("policy=\"p\" key={key}");
        for (event, (name, outcome, elapsed, units), line) in [
            (
                EventKind::Decision(DecisionEvent::new(&check, &decision, MS, None)),
                ("decision", "open", Some(MS), 2),
                format!("A check was decided in 1ms: outcome=open {charge} cost=2"),
            ),
            (
                EventKind::StoreFailure(StoreFailure::new(&check, &error, FailureEffect::Pass, MS)),
                ("store_failure", "unavailable", Some(MS), 2),
                format!("A check got no verdict in 1ms: the store is unavailable: away: {charge} cost=2"),
            ),
            (
                EventKind::NearLimit(NearLimit { policy, key, spent: 8 }),
                ("near_limit", "near", None, 8),
                format!("A key is near its limit: {charge} spent=8 capacity=9"),
            ),
            (
                EventKind::HoldEnd(EndedHold { policy, key, held: 5, actual: 3, end: "settled" }),
                ("hold_end", "settled", None, 5),
                format!("A hold ended: {charge} held=5 actual=3 end=settled"),
            ),
            (
                EventKind::Other(Other::LeaseChange(LeaseChange { policy, key, has_started: true })),
                ("lease_change", "started", None, 4),
                format!("A lease has started: {charge}"),
            ),
        ] {
            let (its_name, its_outcome, its_time, its_line) = event.parts();
            assert_eq!((its_name, its_outcome, its_time), (name, outcome, elapsed));
            assert_eq!(its_line.to_string(), line);
            assert_eq!(event.charges().map(|(_, _, units)| units).collect::<Vec<_>>(), [units], "{name}");
        }
    }
}
