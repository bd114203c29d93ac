//! Policies that have the same count as a given one, and other settings.

use std::time::{Duration, UNIX_EPOCH};

use tollgate::{ConfigError, Policy};

/// The policy of the count alone, without a ban after denials and without holds. A peek under a policy with holds would
/// end holds whose time-to-live has passed. The counts of shards have no such settings.
pub(crate) fn count_alone(policy: &Policy) -> Policy {
    // No policy can be made from the calendar of another one.
    if policy.shards() > 1 || is_calendar(policy) {
        return policy.clone();
    }
    let alone = with_limit(policy, policy.limit()).map(|alone| match policy.burst() {
        Some(burst) => alone.with_burst(burst),
        None => alone,
    });
    alone.expect("the settings of a policy are valid together, also without some of them")
}

/// The policy with the same count and the largest capacity.
pub(crate) fn widest(policy: &Policy) -> Result<Policy, ConfigError> {
    match policy.burst() {
        None if is_calendar(policy) => Ok(policy.clone()),
        None => with_limit(policy, Policy::MAX_LIMIT),
        // A bucket keeps what is spent as a time at its rate. It is full within the longest window.
        Some(_) => {
            let burst = Policy::MAX_WINDOW.as_micros() * u128::from(policy.limit()) / window(policy).as_micros();
            with_limit(policy, policy.limit()).and_then(|policy| {
                policy.with_burst(u64::try_from(burst).unwrap_or(Policy::MAX_LIMIT).min(Policy::MAX_LIMIT)).validated()
            })
        }
    }
}

/// A policy with this limit on the count of another one.
fn with_limit(policy: &Policy, limit: u64) -> Result<Policy, ConfigError> {
    let other = Policy::new(policy.name(), limit, window(policy))?.with_algorithm(policy.algorithm());
    Ok(match policy.resolution() {
        Some(resolution) => other.with_resolution(resolution),
        None => other,
    })
}

fn is_calendar(policy: &Policy) -> bool {
    policy.calendar_window(UNIX_EPOCH).is_some()
}

/// The window in the Redis key of the count: 1 s for the slots of a concurrency limit, which has none.
fn window(policy: &Policy) -> Duration {
    policy.window().unwrap_or(Duration::from_secs(1))
}
