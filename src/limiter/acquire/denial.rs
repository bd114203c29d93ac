//! The decisions of waiters.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    clock::micros,
    decision::{Decision, PolicyDecision, Source},
    limiter::acquire::{forecast::Forecast, waiter::Waiter},
};

/// The decision of a check that charged for several waiters, or that a pause has denied, for one waiter of `cost`.
pub(super) fn for_waiter(decision: &Decision, cost: u64) -> Decision {
    let Some(standing) = decision.policies().first() else { return decision.clone() };
    let retry_after = decision.retry_after();
    let standing = PolicyDecision { cost, violated: !decision.is_allowed(), retry_after, ..standing.clone() };
    Decision::on_waiter(decision.is_allowed(), decision.source(), decision.time_us().unwrap_or(0), Some(standing))
}

/// The denial of a waiter whom the queue itself refuses. `wait` is the time until the waiter can pass.
pub(super) fn by_queue(
    waiter: &Waiter,
    source: Source,
    forecast: Option<&Forecast>,
    wait: Duration,
    now: Instant,
) -> Decision {
    if forecast.is_none() && wait.is_zero() {
        return Decision::on_waiter(false, source, 0, None);
    }
    // Without a forecast, a pause is what keeps the waiter back.
    let left = |until: fn(&Forecast) -> Instant| forecast.map_or(wait, |of| until(of).saturating_duration_since(now));
    let standing = PolicyDecision {
        policy: waiter.policy.clone(),
        cost: waiter.cost,
        violated: true,
        would_deny: false,
        available: 0,
        retry_after: Some(wait),
        next: left(Forecast::next_at),
        reset: left(Forecast::reset_at),
        partition_key: None,
        ban: None,
    };
    let time_us = |of: &Forecast| of.time_us.saturating_add(micros(now.saturating_duration_since(of.sent)));
    Decision::on_waiter(false, source, forecast.map_or(0, time_us), Some(standing))
}
