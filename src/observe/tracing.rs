//! Decisions, failures and recoveries as `tracing` events.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tracing::{Level, debug, enabled, info, trace, warn};

use crate::{
    clock::{Clock, SystemClock, micros},
    error::ErrorKind,
    observe::{
        breaker_change::{BreakerChange, BreakerState},
        event::{Abandoned, Batch, Decided, ObservedCharge, Reset, StoreFailure},
        exempt::{Exempt, ExemptCause},
        failure_message::FailureMessage,
        observer::Observer,
        refusal::Refused,
        throttle::Throttle,
        warning::Warning,
    },
    verdict::Source,
};

/// Writes `tracing` events for everything that an observer receives. Its warnings replace the events that a limiter
/// writes [by itself](crate::observe#what-a-limiter-reports-by-itself).
///
/// | target | level | event |
/// | --- | --- | --- |
/// | `tollgate::store` | warn | limits are not enforced: why, what requests get, what to do; at most once a second for each `cause`; `left_out` is the number of checks in between |
/// | `tollgate::store` | info | the store answers again: the length of the outage, and the number of failed checks |
/// | `tollgate::setup` | warn | something looks wrong about the setup, and what to do: once for each `cause` and layer or store |
/// | `tollgate::breaker` | warn, info, debug | the breaker opened, closed, sent a probe or opened again after one |
/// | `tollgate::decision` | debug | a check was denied, or decided by the failure policy; one event per policy concerned |
/// | `tollgate::decision` | trace | a check was allowed; one event per policy |
/// | `tollgate::decision` | debug | a check was dropped before its verdict; one event per policy |
/// | `tollgate::refusal` | warn | the layer refuses requests because the service is set up wrongly: at most once a second, `left_out` as above |
/// | `tollgate::refusal` | debug | a request was refused without a check: no usable key, or a cost above the limit |
/// | `tollgate::exempt` | debug | a request without a key passed without a check |
/// | `tollgate::exempt` | trace | a request passed without a check, because its route or its key is exempt |
/// | `tollgate::reset` | debug | a key was reset, or could not be; `found` says whether there was anything to forget |
/// | `tollgate::batch` | trace | a call of the store ended |
///
/// The targets are stable. `key` is a [`Fingerprint`](super::Fingerprint), never the key. Denials are not warnings,
/// because denying is the purpose of a limiter, and a flood of requests should not become a flood of warnings.
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
    causes: [Throttle; 6],
    misconfigured: Throttle,
    outage: WarnedOutage,
}

/// Time between two warnings of one cause, in microseconds.
const PAUSE_US: u64 = 1_000_000;

impl Tracing {
    /// Creates an observer.
    pub fn new() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            causes: Default::default(),
            misconfigured: Throttle::default(),
            outage: WarnedOutage::default(),
        }
    }

    /// Sets the clock that spaces warnings, for tests. Defaults to [`SystemClock`].
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    fn cause(&self, kind: ErrorKind) -> &Throttle {
        &self.causes[match kind {
            ErrorKind::BadKey => 0,
            ErrorKind::Config => 1,
            ErrorKind::Deadline => 2,
            ErrorKind::Misconfigured => 3,
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

impl Observer for Tracing {
    fn on_decision(&self, decided: &Decided<'_>) {
        if decided.decision.source() == Source::Store
            && let Some((since_us, failed)) = self.outage.end()
        {
            let outage_ms = self.clock.now_us().saturating_sub(since_us) / 1_000;
            info!(target: "tollgate::store", outage_ms, failed, "the store answers again");
        }
        match decided.outcome() {
            "allowed" if !enabled!(target: "tollgate::decision", Level::TRACE) => {}
            "allowed" => decided.charges().for_each(|charge| {
                trace!(
                    target: "tollgate::decision",
                    policy = charge.policy.name(), key = %charge.fingerprint(), cost = charge.cost,
                    elapsed_us = micros(decided.elapsed), "allowed"
                );
            }),
            _ if !enabled!(target: "tollgate::decision", Level::DEBUG) => {}
            "denied" => {
                let retry_after_ms = decided.decision.retry_after().map(millis_up);
                for charge in decided.charges().filter(|charge| charge.violated) {
                    debug!(
                        target: "tollgate::decision",
                        policy = charge.policy.name(), key = %charge.fingerprint(), cost = charge.cost,
                        remembered = decided.decision.source() == Source::DenyCache, retry_after_ms,
                        elapsed_us = micros(decided.elapsed), "denied"
                    );
                }
            }
            outcome => decided.charges().for_each(|charge| {
                debug!(
                    target: "tollgate::decision",
                    policy = charge.policy.name(), key = %charge.fingerprint(), cost = charge.cost, outcome,
                    elapsed_us = micros(decided.elapsed), "decided without the store"
                );
            }),
        }
    }

    fn on_store_failure(&self, failure: &StoreFailure<'_>) {
        let kind = failure.error.kind();
        let now_us = self.clock.now_us();
        let warning = self.cause(kind).claim(now_us, PAUSE_US);
        // A failure that concerns one check says nothing about the store.
        let concerns_all = !matches!(kind, ErrorKind::BadKey | ErrorKind::Config);
        if concerns_all {
            self.outage.failed(now_us, warning.is_some());
        }
        let Some(left_out) = warning else { return };
        let key = if concerns_all { None } else { failure.charges().next() };
        let key = key.as_ref().map(ObservedCharge::fingerprint).map(tracing::field::display);
        let (cause, elapsed_us) = (failure.cause(), micros(failure.elapsed));
        warn!(target: "tollgate::store", cause, key, left_out, elapsed_us, "{}", FailureMessage::of(failure));
    }

    fn on_batch(&self, batch: &Batch) {
        let Batch { checks, charges, elapsed, answered } = *batch;
        trace!(target: "tollgate::batch", checks, charges, answered, elapsed_us = micros(elapsed), "batch");
    }

    fn on_breaker_change(&self, change: &BreakerChange) {
        let BreakerChange { from, to, .. } = *change;
        match (from, to) {
            (_, BreakerState::Closed) => info!(target: "tollgate::breaker", %from, %to, "closed: the store is asked"),
            // A failed probe only returns the breaker to open, which was reported before.
            (BreakerState::Probing, _) | (_, BreakerState::Probing) => {
                debug!(target: "tollgate::breaker", %from, %to, "probing");
            }
            (_, BreakerState::Open) => warn!(target: "tollgate::breaker", %from, %to, "open: the store is not asked"),
        }
    }

    fn on_refusal(&self, refused: &Refused<'_>) {
        let cause = refused.cause();
        if !refused.is_misconfiguration() {
            debug!(target: "tollgate::refusal", cause, "refused without a check: {refused}");
        } else if let Some(left_out) = self.misconfigured.claim(self.clock.now_us(), PAUSE_US) {
            warn!(target: "tollgate::refusal", cause, left_out, "requests are refused: {refused}");
        }
    }

    fn on_exempt(&self, exempt: &Exempt) {
        match exempt.cause {
            cause @ ExemptCause::MissingKey => debug!(target: "tollgate::exempt", %cause, "not limited"),
            cause => trace!(target: "tollgate::exempt", %cause, "not limited"),
        }
    }

    fn on_abandoned(&self, abandoned: &Abandoned<'_>) {
        if !enabled!(target: "tollgate::decision", Level::DEBUG) {
            return;
        }
        for charge in abandoned.charges() {
            debug!(
                target: "tollgate::decision",
                policy = charge.policy.name(), key = %charge.fingerprint(), cost = charge.cost,
                elapsed_us = micros(abandoned.elapsed), "dropped before a verdict"
            );
        }
    }

    fn on_reset(&self, reset: &Reset<'_>) {
        debug!(
            target: "tollgate::reset",
            policy = reset.policy.name(), key = %reset.fingerprint(), found = reset.found,
            error = reset.error.map(tracing::field::display), elapsed_us = micros(reset.elapsed), "reset"
        );
    }

    fn traces(&self) -> bool {
        true
    }

    fn on_warning(&self, warning: &Warning) {
        warn!(target: "tollgate::setup", cause = warning.cause(), "{warning}");
    }
}

fn millis_up(duration: Duration) -> u64 {
    micros(duration).div_ceil(1_000)
}

/// The outage that warnings have reported. It starts with a warning, so that each recovery event follows a warning.
#[derive(Debug, Default)]
struct WarnedOutage {
    /// When the outage started; 0 without an outage.
    since_us: AtomicU64,
    failed: AtomicU64,
}

impl WarnedOutage {
    fn failed(&self, now_us: u64, warned: bool) {
        if warned && self.since_us.compare_exchange(0, now_us.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.failed.store(0, Ordering::Relaxed);
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the outage. Returns when it started and how many checks failed.
    fn end(&self) -> Option<(u64, u64)> {
        if self.since_us.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let since_us = self.since_us.swap(0, Ordering::Relaxed);
        (since_us != 0).then(|| (since_us, self.failed.load(Ordering::Relaxed)))
    }
}
