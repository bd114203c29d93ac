//! Counters, histograms and a gauge through the `metrics` facade.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::{Batch, BreakerChange, BreakerState, Decided, Observer, StoreFailure};
use crate::decision::Source;

/// Records metrics through the [`metrics`](https://docs.rs/metrics) facade, for whatever recorder the service has.
///
/// | name | kind | labels | counts |
/// | --- | --- | --- | --- |
/// | `tollgate_decisions_total` | counter | `policy`, `outcome`: `allowed`, `denied`, `open`, `closed`, `local` | decisions, once for each policy of the check; of a denied check, for the policies that denied it |
/// | `tollgate_deny_cache_hits_total` | counter | `policy` | those of them that were remembered denials |
/// | `tollgate_fallback_admits_total` | counter | `policy`, `outcome`: `open`, `local` | those of them that passed without the store |
/// | `tollgate_store_errors_total` | counter | `kind`: `unavailable`, `deadline`, `misconfigured`, `bad_key`, `config` | checks without a verdict |
/// | `tollgate_check_duration_seconds` | histogram | `outcome`: `allowed`, `denied`, `error` | how long a check took, until its verdict or until there was none |
/// | `tollgate_batch_checks` | histogram | | checks that shared a call |
/// | `tollgate_batch_duration_seconds` | histogram | | how long a call took |
/// | `tollgate_breaker_state` | gauge | `state`: `closed`, `open`, `probing` | 1 for the state that the circuit breaker is in, 0 for the others |
///
/// No label holds a key: keys are without number, and somebody's. Limiters of one process share these metrics; their
/// policies tell them apart.
///
/// # Examples
///
/// Create it when the recorder is installed, so that the recorder hears the descriptions:
///
/// ```
/// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
/// use tollgate::{Limiter, MemoryStore, Policy, observe::Metrics};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let handle = PrometheusBuilder::new()
///     .set_buckets_for_metric(Matcher::Suffix("_duration_seconds".into()), &Metrics::DURATION_BUCKETS)?
///     .set_buckets_for_metric(Matcher::Full("tollgate_batch_checks".into()), &Metrics::BATCH_BUCKETS)?
///     .install_recorder()?;
/// let limiter = Limiter::new(MemoryStore::new()).observer(Metrics::new());
///
/// limiter.check("key", &Policy::per_minute("per-client", 60)?, 1).await?;
/// assert!(handle.render().contains(r#"tollgate_decisions_total{policy="per-client",outcome="allowed"} 1"#));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metrics;

const DECISIONS: &str = "tollgate_decisions_total";
const DENY_CACHE_HITS: &str = "tollgate_deny_cache_hits_total";
const FALLBACK_ADMITS: &str = "tollgate_fallback_admits_total";
const STORE_ERRORS: &str = "tollgate_store_errors_total";
const CHECK_DURATION: &str = "tollgate_check_duration_seconds";
const BATCH_CHECKS: &str = "tollgate_batch_checks";
const BATCH_DURATION: &str = "tollgate_batch_duration_seconds";
const BREAKER_STATE: &str = "tollgate_breaker_state";

impl Metrics {
    /// Buckets for the histograms of durations: from a check in memory to twice the default deadline.
    pub const DURATION_BUCKETS: [f64; 13] =
        [1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 1e-1];

    /// Buckets for the histogram of batches, up to the most charges that share a call.
    pub const BATCH_BUCKETS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

    /// Creates an observer and describes its metrics to the recorder.
    pub fn new() -> Self {
        describe_counter!(DECISIONS, Unit::Count, "Decisions, by policy and outcome.");
        describe_counter!(DENY_CACHE_HITS, Unit::Count, "Denials that were remembered and not asked for again.");
        describe_counter!(FALLBACK_ADMITS, Unit::Count, "Admitted without the store.");
        describe_counter!(STORE_ERRORS, Unit::Count, "Checks without a verdict.");
        describe_histogram!(CHECK_DURATION, Unit::Seconds, "How long a check took.");
        describe_histogram!(BATCH_CHECKS, Unit::Count, "Checks that shared a call of the store.");
        describe_histogram!(BATCH_DURATION, Unit::Seconds, "How long a call of the store took.");
        describe_gauge!(BREAKER_STATE, Unit::Count, "1 for the state of the circuit breaker, 0 for the others.");
        // Alerts should not have to tell "closed" from "never heard of".
        breaker_is(BreakerState::Closed);
        Self
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn on_decision(&self, decided: &Decided<'_>) {
        let outcome = decided.outcome();
        let source = decided.decision.source();
        let fallback_admit = decided.is_fallback_admit();
        // Without the store's judgement the failure has been timed already.
        if matches!(source, Source::DenyCache | Source::Store) {
            histogram!(CHECK_DURATION, "outcome" => outcome).record(decided.elapsed);
        }
        for charge in decided.charges() {
            if outcome == "denied" && !charge.violated {
                continue;
            }
            let policy = || charge.policy.name().to_owned();
            counter!(DECISIONS, "policy" => policy(), "outcome" => outcome).increment(1);
            if source == Source::DenyCache {
                counter!(DENY_CACHE_HITS, "policy" => policy()).increment(1);
            }
            if fallback_admit {
                counter!(FALLBACK_ADMITS, "policy" => policy(), "outcome" => outcome).increment(1);
            }
        }
    }

    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        counter!(STORE_ERRORS, "kind" => failure.cause()).increment(1);
        histogram!(CHECK_DURATION, "outcome" => "error").record(failure.elapsed);
    }

    fn on_batch(&self, batch: &Batch) {
        // At most 128: a float holds that exactly.
        histogram!(BATCH_CHECKS).record(batch.checks as f64);
        histogram!(BATCH_DURATION).record(batch.elapsed);
    }

    fn on_breaker_change(&self, change: &BreakerChange) {
        breaker_is(change.to);
    }
}

fn breaker_is(current: BreakerState) {
    for state in BreakerState::ALL {
        gauge!(BREAKER_STATE, "state" => state.as_str()).set(if state == current { 1.0 } else { 0.0 });
    }
}
