//! The events that most observers only count or print, and the states of the circuit breaker.

use std::{fmt, time::Duration};

use crate::observe::{
    AbandonmentEvent, CountChangeEvent, ExemptCause, LimitsChange, ObservedKey, PlanFallback, PlanLookup, ResetEvent,
};
use crate::policy::Policy;

/// An event that most observers only count or print.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(all(feature = "plans", feature = "redis", feature = "serde"), test)),
    expect(dead_code, reason = "made by features alone")
)]
pub(crate) enum Other<'a> {
    Abandonment(AbandonmentEvent<'a>),
    Batch(Batch),
    CountChange(CountChangeEvent<'a>),
    Eviction(Eviction<'a>),
    Exemption(ExemptCause),
    LeaseChange(LeaseChange<'a>),
    LimitsChange(&'a LimitsChange),
    PlanFallback(PlanFallback),
    PlanLookup(PlanLookup<'a>),
    Reset(ResetEvent<'a>),
}

impl Other<'_> {
    /// The name, the outcome, the time and the line.
    pub(super) fn parts(&self) -> (&'static str, &'static str, Option<Duration>, &dyn fmt::Display) {
        match self {
            Other::Abandonment(check) => ("abandonment", "dropped", Some(check.elapsed), check),
            Other::Batch(batch) => ("batch", batch.outcome(), Some(batch.elapsed), batch),
            Other::CountChange(changed) => ("count_change", changed.outcome(), Some(changed.elapsed), changed),
            Other::Eviction(eviction) => ("eviction", "evicted", None, eviction),
            Other::Exemption(cause) => ("exemption", cause.as_str(), None, cause),
            Other::LeaseChange(change) => ("lease_change", change.outcome(), None, change),
            Other::LimitsChange(change) => ("limits_change", change.outcome(), None, change),
            Other::PlanFallback(fallback) => ("plan_fallback", fallback.cause.as_str(), None, fallback),
            Other::PlanLookup(lookup) => ("plan_lookup", lookup.outcome.as_str(), Some(lookup.elapsed), lookup),
            Other::Reset(reset) => ("reset", reset.outcome(), Some(reset.elapsed), reset),
        }
    }
}

/// A call of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// Number of checks that shared the call.
    pub(super) checks: usize,
    /// Number of charges of these checks.
    pub(super) charges: usize,
    /// Time from sending the call to its reply, or to dropping it.
    pub(super) elapsed: Duration,
    /// Whether the store sent a usable reply.
    pub(super) answered: bool,
}

impl Batch {
    fn outcome(&self) -> &'static str {
        if self.answered { "answered" } else { "unanswered" }
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checks, charges, elapsed, answered } = self;
        let end = if *answered { "was answered" } else { "got no usable reply" };
        write!(f, "A call of the store {end} in {elapsed:?}: checks={checks} charges={charges}")
    }
}

/// A live count that a full [`MemoryStore`](crate::MemoryStore) has dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eviction<'a> {
    /// The policy of the count. If the count is of denials, its name ends in `(ban)`.
    pub(crate) policy: &'a Policy,
    /// Units that the count had recorded. Its key may now spend them again.
    pub(crate) spent: u64,
}

impl fmt::Display for Eviction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, spent } = self;
        write!(f, "A full store dropped a live count: policy={:?} spent={spent}", policy.name())
    }
}

/// A key has got a lease in this process, or its lease has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseChange<'a> {
    pub(super) policy: &'a Policy,
    pub(super) key: ObservedKey<'a>,
    pub(super) has_started: bool,
}

impl LeaseChange<'_> {
    pub(super) fn outcome(&self) -> &'static str {
        if self.has_started { "started" } else { "ended" }
    }
}

impl fmt::Display for LeaseChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, key, .. } = self;
        write!(f, "A lease has {}: policy={:?} key={key}", self.outcome(), policy.name())
    }
}

/// The states of a circuit breaker, or of all breakers of a store. Events have the [words](Self::as_str).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BreakerState {
    /// Checks go to the store.
    Closed,
    /// No checks go to the store: the failure policy decides at once.
    Open,
    /// One check tests whether the store is back.
    Probing,
}

impl BreakerState {
    /// The words of all states.
    #[cfg(feature = "metrics")]
    pub(super) const WORDS: [&'static str; 3] = [Self::Closed.as_str(), Self::Open.as_str(), Self::Probing.as_str()];

    /// The state in lower case, for events, metrics and logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Probing => "probing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::Check,
        error::{Error, ErrorKind},
        key::Key,
        observe::{
            ObservedKey,
            plan::{PlanFallbackCause, PlanOutcome},
        },
        store::CountChange,
    };

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_event_has_the_name_and_the_outcome_of_the_table_its_time_and_one_line_without_the_key() {
        let (alice, bob) = (Key::from("alice"), Key::from("bob"));
        let (p, q) = (Policy::per_minute("p", 9).unwrap(), Policy::per_minute("q", 9).unwrap());
        let check = Check::new(alice.clone(), &p, 2).and(bob.clone(), &q, 3);
        let (a, b) = (ObservedKey(&alice), ObservedKey(&bob));
        let away = Error::new(ErrorKind::Unavailable, "the server\nis away");
        let (banned, failed) = (Ok(0), Err(away.clone()));
        let (found, lost) = (Ok(true), Err(away.clone()));
        let accepted = LimitsChange::Accepted { file: None, version: 2 };
        let refused = LimitsChange::Refused { file: Some("limits.toml".into()), reason: "rate:\n fast".to_owned() };
        let unreadable = LimitsChange::Unreadable { file: "limits.toml".into(), reason: "gone".to_owned() };
        let ban = CountChange::Ban(60 * MS);
        let lookup = |outcome, error| Other::PlanLookup(PlanLookup { outcome, elapsed: MS, error });
        let fallback = |cause, is_stale| Other::PlanFallback(PlanFallback { cause, is_stale });
        let lease = |has_started| Other::LeaseChange(LeaseChange { policy: &p, key: a, has_started });
        let batch = |answered| Other::Batch(Batch { checks: 3, charges: 5, elapsed: MS, answered });
        let stays = "The key keeps its last plan until that is too old, and then gets the default plan.";
        let events = [
            (
                Other::Abandonment(AbandonmentEvent::new(&check, MS)),
                ("abandonment", "dropped", Some(MS)),
                format!(
                    "A check was dropped after 1ms, before its verdict: policy=\"p\" key={a} cost=2, policy=\"q\" \
                     key={b} cost=3"
                ),
            ),
            (
                batch(true),
                ("batch", "answered", Some(MS)),
                "A call of the store was answered in 1ms: checks=3 charges=5".to_owned(),
            ),
            (
                batch(false),
                ("batch", "unanswered", Some(MS)),
                "A call of the store got no usable reply in 1ms: checks=3 charges=5".to_owned(),
            ),
            (
                Other::CountChange(CountChangeEvent::new(&alice, &p, ban, &banned, MS)),
                ("count_change", "ok", Some(MS)),
                format!("A count was changed by hand in 1ms: policy=\"p\" key={a} change=Ban(60ms) changed=0"),
            ),
            (
                Other::CountChange(CountChangeEvent::new(&alice, &p, CountChange::Unban, &failed, MS)),
                ("count_change", "error", Some(MS)),
                format!(
                    "A count could not be changed by hand: policy=\"p\" key={a} change=Unban error=the store is \
                     unavailable: the server\\nis away"
                ),
            ),
            (
                Other::Eviction(Eviction { policy: &p, spent: 7 }),
                ("eviction", "evicted", None),
                "A full store dropped a live count: policy=\"p\" spent=7".to_owned(),
            ),
            (
                Other::Exemption(ExemptCause::Route),
                ("exemption", "route", None),
                "A request passed without a check: its route is exempt.".to_owned(),
            ),
            (lease(true), ("lease_change", "started", None), format!("A lease has started: policy=\"p\" key={a}")),
            (lease(false), ("lease_change", "ended", None), format!("A lease has ended: policy=\"p\" key={a}")),
            (
                Other::LimitsChange(&accepted),
                ("limits_change", "accepted", None),
                "New limits are in force (version 2).".to_owned(),
            ),
            (
                Other::LimitsChange(&refused),
                ("limits_change", "refused", None),
                "New limits of limits.toml are refused, and the old limits stay in force: rate: | fast".to_owned(),
            ),
            (
                Other::LimitsChange(&unreadable),
                ("limits_change", "unreadable", None),
                "The limits in limits.toml cannot be read (gone), and the old limits stay in force. Restore the file."
                    .to_owned(),
            ),
            (
                fallback(PlanFallbackCause::Busy, true),
                ("plan_fallback", "busy", None),
                "A request has no current plan, so the last plan of its key applies: as many look-ups as allowed are \
                 on their way."
                    .to_owned(),
            ),
            (
                fallback(PlanFallbackCause::Unanswered, false),
                ("plan_fallback", "unanswered", None),
                "A request has no current plan, so the default plan applies: the look-up is on its way.".to_owned(),
            ),
            (lookup(PlanOutcome::Found, None), ("plan_lookup", "found", Some(MS)), "A plan was looked up.".to_owned()),
            (
                lookup(PlanOutcome::Failed, Some("syntax\nerror")),
                ("plan_lookup", "failed", Some(MS)),
                format!("A plan could not be looked up: syntax\\nerror. {stays}"),
            ),
            (
                Other::Reset(ResetEvent::new(&alice, &p, &found, MS)),
                ("reset", "ok", Some(MS)),
                format!("A key was reset in 1ms: policy=\"p\" key={a} found=true"),
            ),
            (
                Other::Reset(ResetEvent::new(&alice, &p, &lost, MS)),
                ("reset", "error", Some(MS)),
                format!(
                    "A key could not be reset: policy=\"p\" key={a} error=the store is unavailable: the server\\nis away"
                ),
            ),
        ];
        for (other, (name, outcome, elapsed), line) in events {
            let (its_name, its_outcome, its_time, its_line) = other.parts();
            assert_eq!((its_name, its_outcome, its_time), (name, outcome, elapsed));
            assert_eq!(its_line.to_string(), line);
            assert!(!format!("{other:?}{its_line}").contains("alice"), "{other:?}");
            let row = include_str!("observer.rs").lines().find(|row| row.starts_with(&format!("/// | `{name}` |")));
            let outcomes = row.expect("each name has a row").rsplit(" | ").next().unwrap_or_default();
            assert!(outcomes.contains(&format!("`{outcome}`")), "the row of {name} lacks {outcome}");
        }
    }
}
