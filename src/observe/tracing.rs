//! Decisions, failures and recoveries as `tracing` events.

use std::{sync::Arc, time::Duration};

use tracing::{Level, debug, enabled, info, trace, warn};

use crate::clock::{Clock, SystemClock, micros};
use crate::observe::other::{Batch, LeaseChange};
use crate::observe::outage::{Causes, Length, Outage};
use crate::observe::{
    AbandonmentEvent, CountChangeEvent, DecisionEvent, EndedHold, Event, EventKind, ExemptCause, HoldEnd, LimitsChange,
    NearLimit, ObservedKey, ObservedRequest, Observer, Other, PlanFallback, PlanLookup, RefusalEvent, ResetEvent,
    StoreFailure, Throttle,
};
use crate::observe::{effects::EffectCounts, log_line::FailureMessage};
use crate::{error::ErrorKind, policy::Policy, verdict::Source};

/// Writes `tracing` events for everything that an observer receives. Its warnings replace the events that a limiter
/// writes [by itself](crate::observe#what-a-limiter-reports-by-itself).
///
/// | target | level | event |
/// | --- | --- | --- |
/// | `tollgate::store` | warn | limits are not enforced: why, what requests get, what to do; at most once a second for each `cause`, and at once if requests get something else than before, such as 503 on a route that fails closed; `left_out` is the number of checks in between |
/// | `tollgate::store` | info | the store answers again, and no check has failed for a second: the length of the outage, the number of failed checks, and what they got |
/// | `tollgate::setup` | warn | something looks wrong about the setup, and what to do: once for each `cause` and layer or store |
/// | `tollgate::limits` | info | the limits of a `LiveLimits` were replaced |
/// | `tollgate::limits` | warn | new limits were refused, or their file cannot be read: once for each change of the file |
/// | `tollgate::breaker` | warn, info, debug | the breaker opened, closed, sent a probe or opened again after one |
/// | `tollgate::decision` | debug | a check was denied, or decided by the failure policy; one event per policy concerned |
/// | `tollgate::decision` | debug | a shadow policy would have denied a check |
/// | `tollgate::decision` | trace | a check was allowed; one event per policy |
/// | `tollgate::decision` | debug | a check was dropped before its verdict; one event per policy |
/// | `tollgate::refusal` | warn | the layer refuses requests because the service is set up wrongly: at most once a second, `left_out` as above |
/// | `tollgate::refusal` | debug | a request was refused without a check: no usable key, or a cost above the limit |
/// | `tollgate::refusal` | warn, debug | the same in shadow mode, where the requests pass |
/// | `tollgate::near_limit` | debug | a key has spent a policy's near limit: once for each key and window |
/// | `tollgate::exempt` | debug | a request without a key passed without a check |
/// | `tollgate::exempt` | trace | a request passed without a check, because its route or its key is exempt |
/// | `tollgate::plans` | warn | a look-up of a plan failed, or none could start: at most once a second, `left_out` as above |
/// | `tollgate::plans` | debug | a look-up of a plan ended; trace: a request had no current plan |
/// | `tollgate::hold` | debug | a hold has ended: settled, released, dropped without a settlement, or expired before |
/// | `tollgate::hold` | warn | no store has answered the change of a hold within its time-to-live: at most once a second, `left_out` as above |
/// | `tollgate::lease` | debug | a key got a lease, or its lease ended |
/// | `tollgate::reset` | debug | a key was reset, or could not be; `found` says whether there was anything to forget |
/// | `tollgate::by_hand` | debug | units of a key were recorded or credited, or it was banned or unbanned, or that failed; `changed` is the result |
/// | `tollgate::batch` | trace | a call of the store ended |
///
/// The targets are stable. `key` is a [`Fingerprint`](super::Fingerprint), never the key. `route` and `method` are
/// those of a [decision](super::Event::decision), in events about decisions and refusals of a layer. Denials are not
/// warnings, because denying is the purpose of a limiter, and a flood of requests should not become a flood of
/// warnings.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, observe::Tracing};
///
/// let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new());
/// ```
#[derive(Debug)]
pub struct Tracing {
    clock: Arc<dyn Clock>,
    /// One throttle for each kind of error.
    kinds: [Throttle; 6],
    misconfigured: Throttle,
    plan_lookup: Throttle,
    plan_fallback: Throttle,
    hold: Throttle,
    outage: Outage,
    causes: Causes,
}

/// Time between two warnings of one cause, in microseconds.
const PAUSE_US: u64 = 1_000_000;

impl Tracing {
    /// Creates an observer.
    pub fn new() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            kinds: Default::default(),
            misconfigured: Throttle::default(),
            plan_lookup: Throttle::default(),
            plan_fallback: Throttle::default(),
            hold: Throttle::default(),
            outage: Outage::default(),
            causes: Causes::default(),
        }
    }

    /// Sets the clock that spaces warnings, for tests. Defaults to [`SystemClock`].
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    fn throttle(&self, kind: ErrorKind) -> &Throttle {
        &self.kinds[match kind {
            ErrorKind::BadKey => 0,
            ErrorKind::InvalidCall => 1,
            ErrorKind::Deadline => 2,
            ErrorKind::StoreMisconfigured => 3,
            ErrorKind::Overloaded => 4,
            ErrorKind::Unavailable => 5,
        }]
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Self::new()
    }
}

impl Tracing {
    fn decision(&self, decided: &DecisionEvent<'_>) {
        if decided.decision.source() == Source::Store && self.outage.is_on() {
            self.answered();
        }
        let (route, method) = (decided.route, decided.method);
        if enabled!(target: "tollgate::decision", Level::DEBUG) {
            for charge in decided.charges().filter(|charge| charge.would_deny) {
                debug!(
                    target: "tollgate::decision",
                    policy = charge.policy.name(), key = %charge.key, route, method, cost = charge.cost,
                    remembered = decided.decision.source() == Source::DenyCache,
                    elapsed_us = micros(decided.elapsed), "would be denied"
                );
            }
        }
        match decided.outcome() {
            "allowed" if !enabled!(target: "tollgate::decision", Level::TRACE) => {}
            "allowed" => decided.charges().filter(|charge| !charge.would_deny).for_each(|charge| {
                trace!(
                    target: "tollgate::decision",
                    policy = charge.policy.name(), key = %charge.key, route, method, cost = charge.cost,
                    elapsed_us = micros(decided.elapsed), "allowed"
                );
            }),
            _ if !enabled!(target: "tollgate::decision", Level::DEBUG) => {}
            "denied" => {
                let retry_after_ms = decided.decision.retry_after().map(millis_up);
                for charge in decided.charges().filter(|charge| charge.violated) {
                    debug!(
                        target: "tollgate::decision",
                        policy = charge.policy.name(), key = %charge.key, route, method, cost = charge.cost,
                        remembered = decided.decision.source() == Source::DenyCache, retry_after_ms,
                        elapsed_us = micros(decided.elapsed), "denied"
                    );
                }
            }
            outcome => decided.charges().filter(|charge| charge.violated || outcome != "blocked").for_each(|charge| {
                debug!(
                    target: "tollgate::decision",
                    policy = charge.policy.name(), key = %charge.key, route, method, cost = charge.cost, outcome,
                    elapsed_us = micros(decided.elapsed), "decided without the store"
                );
            }),
        }
    }

    /// Reports the end of an outage, if the answer of the store ends one.
    #[cold]
    fn answered(&self) {
        let Some(Length { us, effects }) = self.outage.answered(self.clock.now_us()) else { return };
        self.kinds.iter().for_each(Throttle::forget);
        self.causes.end_outage();
        let (outage_ms, failed) = (us / 1_000, effects.sum());
        info!(target: "tollgate::store", outage_ms, failed, "the store answers again; without it: {effects}");
    }

    fn failure(&self, failure: &StoreFailure<'_>) {
        match failure.error.kind() {
            // These failures say nothing about other checks, or are no outage of the store.
            kind @ (ErrorKind::BadKey | ErrorKind::InvalidCall | ErrorKind::Overloaded) => {
                if let Some(left_out) = self.throttle(kind).claim(self.clock.now_us(), PAUSE_US) {
                    Self::warn(failure, left_out, failure.effect.into());
                }
            }
            ErrorKind::Deadline | ErrorKind::StoreMisconfigured | ErrorKind::Unavailable => self.in_outage(failure),
        }
    }

    /// Warns if `throttle` allows it, and of each effect that no warning of this outage has named.
    fn in_outage(&self, failure: &StoreFailure<'_>) {
        let StoreFailure { error, effect, .. } = *failure;
        let (now_us, effects) = (self.clock.now_us(), self.outage.effects());
        // While the breaker is open, the cause is what has opened it.
        let (cause, _) = self.causes.note(error);
        let throttle = self.throttle(cause);
        let left_out = match effects.is_news(effect) {
            true => Some(throttle.insist(now_us, PAUSE_US)),
            false => throttle.claim(now_us, PAUSE_US),
        };
        self.outage.count(effect, now_us);
        if let (Some(left_out), Some(cause)) = (left_out, self.causes.report()) {
            Self::warn(&failure.caused_by(&cause), left_out, effects.name());
        }
    }

    fn warn(failure: &StoreFailure<'_>, left_out: u64, effects: EffectCounts) {
        let concerns_one = matches!(failure.error.kind(), ErrorKind::BadKey | ErrorKind::InvalidCall);
        let key = failure.charges().next().filter(|_| concerns_one);
        let key = key.map(|charge| tracing::field::display(charge.key));
        let (cause, elapsed_us, text) =
            (failure.cause(), micros(failure.elapsed), FailureMessage::new(failure.error, effects));
        warn!(target: "tollgate::store", cause, key, left_out, elapsed_us, "{text}");
    }

    fn batch(batch: &Batch) {
        let Batch { checks, charges, elapsed, answered } = *batch;
        trace!(target: "tollgate::batch", checks, charges, answered, elapsed_us = micros(elapsed), "batch");
    }

    fn breaker_change(from: &str, to: &str) {
        match (from, to) {
            (_, "closed") => info!(target: "tollgate::breaker", %from, %to, "closed: the store is asked"),
            // A failed probe only returns the breaker to open, which was reported before.
            ("probing", _) | (_, "probing") => {
                debug!(target: "tollgate::breaker", %from, %to, "probing");
            }
            _ => warn!(target: "tollgate::breaker", %from, %to, "open: the store is not asked"),
        }
    }

    fn refusal(&self, refusal: &RefusalEvent<'_>) {
        let (cause, ObservedRequest { method, route }) = (refusal.cause(), refusal.request());
        if !refusal.is_misconfiguration() {
            debug!(target: "tollgate::refusal", cause, route, method, "refused without a check: {refusal}");
        } else if let Some(left_out) = self.misconfigured.claim(self.clock.now_us(), PAUSE_US) {
            warn!(target: "tollgate::refusal", cause, route, method, left_out, "requests are refused: {refusal}");
        }
    }

    fn would_refuse(&self, refusal: &RefusalEvent<'_>) {
        let (cause, ObservedRequest { method, route }) = (refusal.cause(), refusal.request());
        if !refusal.is_misconfiguration() {
            debug!(target: "tollgate::refusal", cause, route, method, "would be refused without a check: {refusal}");
        } else if let Some(left_out) = self.misconfigured.claim(self.clock.now_us(), PAUSE_US) {
            warn!(target: "tollgate::refusal", cause, route, method, left_out, "requests would be refused: {refusal}");
        }
    }

    fn near_limit(policy: &Policy, key: ObservedKey<'_>, spent: u64) {
        debug!(
            target: "tollgate::near_limit",
            policy = policy.name(), %key, spent, limit = policy.capacity(), is_shadow = policy.is_shadow(),
            "near the limit"
        );
    }

    fn exemption(exempt: ExemptCause) {
        let cause = exempt.as_str();
        match exempt {
            ExemptCause::MissingKey => debug!(target: "tollgate::exempt", %cause, "not limited"),
            _ => trace!(target: "tollgate::exempt", %cause, "not limited"),
        }
    }

    fn abandonment(abandoned: &AbandonmentEvent<'_>) {
        if !enabled!(target: "tollgate::decision", Level::DEBUG) {
            return;
        }
        for charge in abandoned.charges() {
            debug!(
                target: "tollgate::decision",
                policy = charge.policy.name(), key = %charge.key, cost = charge.cost,
                elapsed_us = micros(abandoned.elapsed), "dropped before a verdict"
            );
        }
    }

    fn hold_end(&self, policy: &Policy, key: ObservedKey<'_>, held: u64, actual: u64, end: &str) {
        if end != HoldEnd::Unanswered.as_str() {
            debug!(
                target: "tollgate::hold",
                policy = policy.name(), %key, held, actual, %end, "a hold has ended"
            );
        } else if let Some(left_out) = self.hold.claim(self.clock.now_us(), PAUSE_US) {
            warn!(
                target: "tollgate::hold",
                policy = policy.name(), held, actual, left_out,
                "no store has answered the settlement of a hold, so the store ends it as its policy says"
            );
        }
    }

    fn reset(reset: &ResetEvent<'_>) {
        debug!(
            target: "tollgate::reset",
            policy = reset.policy.name(), key = %reset.key, found = reset.result.ok(),
            error = reset.result.err().map(tracing::field::display), elapsed_us = micros(reset.elapsed), "reset"
        );
    }

    fn count_change(changed: &CountChangeEvent<'_>) {
        debug!(
            target: "tollgate::by_hand",
            policy = changed.policy.name(), key = %changed.key, change = ?changed.change,
            changed = changed.result.ok(), error = changed.result.err().map(tracing::field::display),
            elapsed_us = micros(changed.elapsed), "changed by hand"
        );
    }

    fn lease_change(change: &LeaseChange<'_>) {
        let (policy, key, outcome) = (change.policy.name(), change.key, change.outcome());
        debug!(target: "tollgate::lease", policy, %key, "a lease has {outcome}");
    }

    fn limits_change(change: &LimitsChange) {
        let outcome = change.outcome();
        match change {
            LimitsChange::Accepted { .. } => info!(target: "tollgate::limits", outcome, "{change}"),
            LimitsChange::Refused { .. } | LimitsChange::Unreadable { .. } => {
                warn!(target: "tollgate::limits", outcome, "{change}");
            }
        }
    }

    fn plan_lookup(&self, lookup: &PlanLookup<'_>) {
        let (outcome, elapsed_us) = (lookup.outcome.as_str(), micros(lookup.elapsed));
        if lookup.outcome.is_answer() {
            debug!(target: "tollgate::plans", outcome, elapsed_us, "looked up");
        } else if let Some(left_out) = self.plan_lookup.claim(self.clock.now_us(), PAUSE_US) {
            warn!(target: "tollgate::plans", outcome, left_out, elapsed_us, "{lookup}");
        }
    }

    fn plan_fallback(&self, fallback: &PlanFallback) {
        let (cause, is_stale) = (fallback.cause.as_str(), fallback.is_stale);
        match fallback.advice() {
            Some(advice) => {
                if let Some(left_out) = self.plan_fallback.claim(self.clock.now_us(), PAUSE_US) {
                    warn!(target: "tollgate::plans", cause, is_stale, left_out, "{advice}");
                }
            }
            None => trace!(target: "tollgate::plans", cause, is_stale, "no current plan"),
        }
    }
}

impl Observer for Tracing {
    fn on_event(&self, event: &Event<'_>) {
        match &event.0 {
            EventKind::Decision(decided) => self.decision(decided),
            EventKind::StoreFailure(failure) => self.failure(failure),
            EventKind::BreakerChange(change) => Self::breaker_change(change.from.as_str(), change.to.as_str()),
            EventKind::Refusal(refusal) => self.refusal(refusal),
            EventKind::WouldRefuse(refusal) => self.would_refuse(refusal),
            EventKind::NearLimit(NearLimit { policy, key, spent }) => Self::near_limit(policy, *key, *spent),
            EventKind::HoldEnd(EndedHold { policy, key, held, actual, end }) => {
                self.hold_end(policy, *key, *held, *actual, end)
            }
            EventKind::Warning(warning) => warn!(target: "tollgate::setup", cause = warning.cause(), "{warning}"),
            EventKind::Other(other) => match other {
                Other::Abandonment(check) => Self::abandonment(check),
                Other::Batch(batch) => Self::batch(batch),
                Other::CountChange(change) => Self::count_change(change),
                // A warning says it once. A flood of keys must not become a flood of events.
                Other::Eviction(_) => {}
                Other::Exemption(cause) => Self::exemption(*cause),
                Other::LeaseChange(change) => Self::lease_change(change),
                Other::LimitsChange(change) => Self::limits_change(change),
                Other::PlanFallback(fallback) => self.plan_fallback(fallback),
                Other::PlanLookup(lookup) => self.plan_lookup(lookup),
                Other::Reset(reset) => Self::reset(reset),
            },
        }
    }

    fn traces(&self) -> bool {
        true
    }

    fn on_answer(&self) {
        self.answered();
    }
}

fn millis_up(duration: Duration) -> u64 {
    micros(duration).div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_of_events_has_each_target() {
        let source = include_str!("tracing.rs");
        let targets = source.split("target: \"").skip(1).filter_map(|rest| rest.split_once('"'));
        for (target, _) in targets.filter(|(target, _)| target.starts_with("tollgate::")) {
            assert!(source.contains(&format!("/// | `{target}` |")), "{target}");
        }
    }
}
