//! Counters, histograms and gauges through the `metrics` facade.

use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::observe::{
    BreakerState, CountChangeEvent, DecisionEvent, Event, EventKind, Observer, Other, PlanFallback, PlanLookup,
    ResetEvent, other::LeaseChange, seen_policies::SeenPolicies,
};
use crate::{policy::Policy, store::CountChange, verdict::Source};

/// Records metrics through the [`metrics`](https://docs.rs/metrics) facade, for the recorder of the service.
///
/// [The guide](crate::guide::operations#metrics) lists every metric with its type, its unit, its labels and their
/// values.
///
/// No label contains a key, because keys are unbounded in number and identify clients. Limiters of one process share
/// these metrics. Metrics without the label `policy` do not distinguish limiters: of several breakers, the gauge has
/// the latest change. With several limiters, give each a separate observer with [`for_limiter`](Self::for_limiter).
///
/// # Examples
///
/// Create the observer after the recorder is installed, so that the recorder receives the descriptions:
///
/// ```
/// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
/// use tollgate::{Limiter, MemoryStore, Policy, observe::Metrics};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = PrometheusBuilder::new();
/// for (name, buckets) in Metrics::BUCKETS {
///     let histogram = Matcher::Full(name.to_string());
///     builder = builder.set_buckets_for_metric(histogram, buckets)?;
/// }
/// let handle = builder.install_recorder()?;
/// let limiter = Limiter::new(MemoryStore::new()).with_observer(Metrics::new());
///
/// let _ = limiter.check("key", &Policy::per_minute("per-client", 60)?, 1).await?;
/// assert!(handle.render().contains(
///     r#"tollgate_decisions_total{policy="per-client",outcome="allowed"} 1"#
/// ));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Metrics {
    limiter: Option<SharedString>,
    /// The sequence number of the latest change of the breaker.
    breaker_change: Arc<Mutex<u64>>,
    seen: Arc<SeenPolicies>,
}

const DECISIONS: &str = "tollgate_decisions_total";
const DENY_CACHE_HITS: &str = "tollgate_deny_cache_hits_total";
const FALLBACK_ADMITS: &str = "tollgate_fallback_admits_total";
const STORE_ERRORS: &str = "tollgate_store_errors_total";
const ABANDONED: &str = "tollgate_abandoned_checks_total";
const REFUSED: &str = "tollgate_refused_requests_total";
const REFUSALS_BY_ROUTE: &str = "tollgate_refusals_by_route_total";
const WOULD_REFUSE: &str = "tollgate_would_refuse_total";
const NEAR_LIMIT: &str = "tollgate_near_limit_total";
const EXEMPT: &str = "tollgate_exempt_requests_total";
const HOLDS_ENDED: &str = "tollgate_holds_ended_total";
const RESETS: &str = "tollgate_resets_total";
const COUNT_CHANGES: &str = "tollgate_count_changes_total";
const EVICTED: &str = "tollgate_evicted_counts_total";
const PLAN_LOOKUPS: &str = "tollgate_plan_lookups_total";
const PLAN_LOOKUP_DURATION: &str = "tollgate_plan_lookup_duration_seconds";
const PLAN_FALLBACKS: &str = "tollgate_plan_fallbacks_total";
const WARNINGS: &str = "tollgate_warnings_total";
const LIMITS_CHANGES: &str = "tollgate_limits_changes_total";
const CHECK_DURATION: &str = "tollgate_check_duration_seconds";
const BATCH_CHECKS: &str = "tollgate_batch_checks";
const BATCH_DURATION: &str = "tollgate_batch_duration_seconds";
const BREAKER_STATE: &str = "tollgate_breaker_state";
const LEASES: &str = "tollgate_leases";
const POLICY_LIMIT: &str = "tollgate_policy_limit";
const POLICY_WINDOW: &str = "tollgate_policy_window_seconds";

const DURATION_BUCKETS: &[f64] = &[1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 1e-1];

impl Metrics {
    /// The name of each histogram, and buckets for it. Those of durations are in seconds, from a check in memory to
    /// twice the default deadline. Those of batches go up to the largest number of charges in a call.
    pub const BUCKETS: &'static [(&'static str, &'static [f64])] = &[
        (CHECK_DURATION, DURATION_BUCKETS),
        (BATCH_DURATION, DURATION_BUCKETS),
        (PLAN_LOOKUP_DURATION, DURATION_BUCKETS),
        (BATCH_CHECKS, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]),
    ];

    /// Creates an observer and describes its metrics to the recorder.
    pub fn new() -> Self {
        Self::start(None)
    }

    /// Creates an observer whose metrics all have the label `limiter` with this name.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, observe::Metrics};
    ///
    /// let requests = Limiter::new(MemoryStore::new())
    ///     .with_observer(Metrics::for_limiter("requests"));
    /// let uploads = Limiter::new(MemoryStore::new())
    ///     .with_observer(Metrics::for_limiter("uploads"));
    /// ```
    pub fn for_limiter(name: impl Into<String>) -> Self {
        Self::start(Some(SharedString::from(Arc::<str>::from(name.into()))))
    }

    fn start(limiter: Option<SharedString>) -> Self {
        describe_counter!(DECISIONS, Unit::Count, "Decisions, by policy and outcome.");
        describe_counter!(DENY_CACHE_HITS, Unit::Count, "Denials from memory, without asking the store.");
        describe_counter!(FALLBACK_ADMITS, Unit::Count, "Requests admitted without a verdict of the store.");
        describe_counter!(STORE_ERRORS, Unit::Count, "Checks without a verdict.");
        describe_counter!(ABANDONED, Unit::Count, "Checks that were dropped before their verdict.");
        describe_counter!(REFUSED, Unit::Count, "Requests that were refused without a check.");
        describe_counter!(REFUSALS_BY_ROUTE, Unit::Count, "Requests that a layer refused, by route and cause.");
        describe_counter!(WOULD_REFUSE, Unit::Count, "Requests that shadow mode alone let pass.");
        describe_counter!(NEAR_LIMIT, Unit::Count, "Keys that came near a limit, by policy.");
        describe_counter!(EXEMPT, Unit::Count, "Requests that passed without a check.");
        describe_counter!(HOLDS_ENDED, Unit::Count, "Holds that have ended, by policy and end.");
        describe_counter!(RESETS, Unit::Count, "Keys that were reset.");
        describe_counter!(COUNT_CHANGES, Unit::Count, "Bans and units that were changed by hand.");
        describe_counter!(EVICTED, Unit::Count, "Live counts that a full store dropped for new keys.");
        describe_counter!(PLAN_LOOKUPS, Unit::Count, "Look-ups of plans that ended.");
        describe_histogram!(PLAN_LOOKUP_DURATION, Unit::Seconds, "How long a look-up of a plan took.");
        describe_counter!(PLAN_FALLBACKS, Unit::Count, "Requests without a current plan.");
        describe_counter!(WARNINGS, Unit::Count, "Warnings about the setup.");
        describe_counter!(LIMITS_CHANGES, Unit::Count, "Attempts to replace the limits, by outcome.");
        describe_histogram!(CHECK_DURATION, Unit::Seconds, "How long a check took.");
        describe_histogram!(BATCH_CHECKS, Unit::Count, "Checks that shared a call of the store.");
        describe_histogram!(BATCH_DURATION, Unit::Seconds, "How long a call of the store took.");
        describe_gauge!(BREAKER_STATE, Unit::Count, "1 for the state of the circuit breaker, 0 for the others.");
        describe_gauge!(LEASES, Unit::Count, "Keys of this process that have a lease, by policy.");
        describe_gauge!(POLICY_LIMIT, Unit::Count, "The limit of a policy, in units per window or slots.");
        describe_gauge!(POLICY_WINDOW, Unit::Seconds, "The window of a policy.");
        // Sets the gauge at once, so that alerts need not distinguish a closed breaker from a missing gauge.
        let this = Self { limiter, breaker_change: Arc::default(), seen: Arc::default() };
        this.breaker_is(BreakerState::Closed.as_str());
        this
    }

    fn breaker_is(&self, current: &str) {
        for state in BreakerState::WORDS {
            let value = if state == current { 1.0 } else { 0.0 };
            gauge!(BREAKER_STATE, self.labels([("state", state.into())])).set(value);
        }
    }

    fn count_refusal(&self, method: &'static str, route: Option<&str>, cause: &'static str) {
        let route = route.unwrap_or("unmatched").to_owned();
        self.count(REFUSALS_BY_ROUTE, [("route", route.into()), ("method", method.into()), ("cause", cause.into())]);
    }

    fn count_decision(&self, decided: &DecisionEvent<'_>) {
        let outcome = decided.outcome();
        let source = decided.decision.source();
        let fallback_admit = decided.is_fallback_admit();
        // Without a verdict, the failure has recorded the time already.
        if matches!(source, Source::DenyCache | Source::Lease | Source::Store) {
            histogram!(CHECK_DURATION, self.labels([("outcome", outcome.into())])).record(decided.elapsed);
        }
        if let Some(method) = decided.method.filter(|_| !decided.decision.is_allowed()) {
            self.count_refusal(method, decided.route, outcome);
        }
        for charge in decided.charges() {
            self.seen.on_news(charge.policy, || self.show_limit(charge.policy));
            if matches!(outcome, "denied" | "blocked") && !charge.violated && !charge.would_deny {
                continue;
            }
            if fallback_admit {
                // Says by which failure policy the request passes, also under a shadow policy that would deny it.
                self.count(FALLBACK_ADMITS, [policy(charge.policy), ("outcome", outcome.into())]);
            }
            let outcome = if charge.would_deny { "would_deny" } else { outcome };
            self.count(DECISIONS, [policy(charge.policy), ("outcome", outcome.into())]);
            if source == Source::DenyCache {
                self.count(DENY_CACHE_HITS, [policy(charge.policy)]);
            }
        }
    }

    fn show_limit(&self, of: &Policy) {
        // A limit above 2^53 is rounded, as every number of a gauge.
        gauge!(POLICY_LIMIT, self.labels([policy(of)])).set(of.limit() as f64);
        if let Some(window) = of.window() {
            gauge!(POLICY_WINDOW, self.labels([policy(of)])).set(window);
        }
    }

    fn note_breaker(&self, state: &str, sequence: u64) {
        // Held while the gauge is set, so that a later change is not overwritten by an earlier one.
        let mut latest = self.breaker_change.lock().unwrap_or_else(PoisonError::into_inner);
        if sequence > *latest {
            *latest = sequence;
            self.breaker_is(state);
        }
    }

    fn count_reset(&self, reset: &ResetEvent<'_>) {
        self.count(RESETS, [policy(reset.policy), ("outcome", reset.outcome().into())]);
    }

    fn count_change(&self, changed: &CountChangeEvent<'_>) {
        let change = match changed.change {
            CountChange::Ban(_) => "ban",
            CountChange::Credit(_) => "credit",
            CountChange::Record(_) => "record",
            CountChange::Unban => "unban",
        };
        let outcome = changed.outcome();
        self.count(COUNT_CHANGES, [policy(changed.policy), ("change", change.into()), ("outcome", outcome.into())]);
    }

    /// Counts up and down, because a limiter's events may arrive in another order than they happened, and limiters may
    /// share the gauge.
    fn count_lease(&self, change: &LeaseChange<'_>) {
        let leases = gauge!(LEASES, self.labels([policy(change.policy)]));
        if change.has_started { leases.increment(1.0) } else { leases.decrement(1.0) }
    }

    fn count_lookup(&self, lookup: &PlanLookup<'_>) {
        let outcome = lookup.outcome.as_str();
        self.count(PLAN_LOOKUPS, [("outcome", outcome.into())]);
        histogram!(PLAN_LOOKUP_DURATION, self.labels([("outcome", outcome.into())])).record(lookup.elapsed);
    }

    fn count_fallback(&self, fallback: &PlanFallback) {
        let plan = if fallback.is_stale { "stale" } else { "default" };
        self.count(PLAN_FALLBACKS, [("plan", plan.into()), ("cause", fallback.cause.as_str().into())]);
    }

    /// Adds 1 to a counter.
    fn count<const N: usize>(&self, name: &'static str, labels: [(&'static str, SharedString); N]) {
        counter!(name, self.labels(labels)).increment(1);
    }

    /// Adds the label `limiter` if the observer has a name.
    fn labels<const N: usize>(&self, labels: [(&'static str, SharedString); N]) -> Vec<Label> {
        let limiter = self.limiter.iter().map(|name| Label::new("limiter", name.clone()));
        labels.into_iter().map(|(name, value)| Label::new(name, value)).chain(limiter).collect()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn on_event(&self, event: &Event<'_>) {
        match &event.0 {
            EventKind::Decision(decided) => self.count_decision(decided),
            EventKind::StoreFailure(failure) => {
                self.count(STORE_ERRORS, [("kind", failure.cause().into())]);
                histogram!(CHECK_DURATION, self.labels([("outcome", "error".into())])).record(failure.elapsed);
            }
            EventKind::BreakerChange(change) => self.note_breaker(change.to.as_str(), change.sequence),
            EventKind::Refusal(refusal) => {
                self.count(REFUSED, [("cause", refusal.cause().into())]);
                self.count_refusal(refusal.request().method, refusal.request().route, refusal.cause());
            }
            EventKind::WouldRefuse(refusal) => self.count(WOULD_REFUSE, [("cause", refusal.cause().into())]),
            EventKind::NearLimit(near) => self.count(NEAR_LIMIT, [policy(near.policy)]),
            EventKind::HoldEnd(ended) => {
                self.count(HOLDS_ENDED, [policy(ended.policy), ("end", ended.end.into())]);
            }
            EventKind::Warning(warning) => self.count(WARNINGS, [("warning", warning.cause().into())]),
            EventKind::Other(other) => match other {
                Other::Abandonment(check) => {
                    check.charges().for_each(|charge| self.count(ABANDONED, [policy(charge.policy)]));
                }
                Other::Batch(batch) => {
                    // At most 128, which a float represents exactly.
                    histogram!(BATCH_CHECKS, self.labels([])).record(batch.checks as f64);
                    histogram!(BATCH_DURATION, self.labels([])).record(batch.elapsed);
                }
                Other::CountChange(change) => self.count_change(change),
                Other::Eviction(eviction) => self.count(EVICTED, [policy(eviction.policy)]),
                Other::Exemption(cause) => self.count(EXEMPT, [("cause", cause.as_str().into())]),
                Other::LeaseChange(change) => self.count_lease(change),
                Other::LimitsChange(change) => self.count(LIMITS_CHANGES, [("outcome", change.outcome().into())]),
                Other::PlanFallback(fallback) => self.count_fallback(fallback),
                Other::PlanLookup(lookup) => self.count_lookup(lookup),
                Other::Reset(reset) => self.count_reset(reset),
            },
        }
    }
}

fn policy(policy: &Policy) -> (&'static str, SharedString) {
    ("policy", policy.name().to_owned().into())
}
