//! Pauses that a fleet shares: an upstream's request to wait, kept in the store.
//!
//! A pause is a token bucket of microseconds beside the count of the key. Spending the whole bucket pauses every
//! process for the time in which it fills again. Each check of a process that shares pauses takes one microsecond from
//! the bucket, in the same atomic check as its cost, so a pause needs no further call.

use std::{sync::Arc, time::Duration};

use crate::{
    check::Check,
    clock::micros,
    error::Error,
    key::Key,
    limiter::{acquire::handle::Acquire, core::Core, handle::Limiter, purpose::Purpose},
    policy::Policy,
};

/// The capacity of the bucket for checks: 1 000 µs, so that checks do not pause each other.
const ROOM_US: u32 = 1_000;

impl Limiter {
    /// Keeps the waiters of `key` in this process from asking the store for `time`.
    pub(crate) fn pause(&self, key: &Key, policy: &Policy, time: Duration) {
        self.core.queues.pause(key, policy, time);
    }

    /// For how long `key` is still paused in this process.
    pub(crate) fn paused(&self, key: &Key, policy: &Policy) -> Option<Duration> {
        self.core.queues.paused_for(key, policy)
    }

    /// Pauses `key` in every process that [shares pauses](Acquire::share_pauses). A longer pause that holds already
    /// stays.
    pub(crate) async fn pause_fleet(&self, key: &Key, policy: &Policy, time: Duration) -> Result<(), Error> {
        begin(&self.core, key, policy, time).await
    }
}

impl Acquire {
    /// Sets whether this process heeds the [pauses of the fleet](Limiter::pause_fleet).
    pub(crate) fn share_pauses(mut self, share: bool) -> Self {
        self.shares_pauses = share;
        self
    }
}

/// Adds the charge that a pause denies.
pub(super) fn heed(check: Check, key: &Key, policy: &Policy) -> Check {
    check.and(key.clone(), &policy.pauses(ROOM_US), 1).expect("a check of one charge has room for another one")
}

async fn begin(core: &Arc<Core>, key: &Key, policy: &Policy, time: Duration) -> Result<(), Error> {
    // The bucket lets checks pass when it has one unit, so the pause has to outlast the room for checks.
    let burst_us = u32::try_from(micros(time).saturating_add(ROOM_US.into())).unwrap_or(u32::MAX);
    let pauses = policy.pauses(burst_us);
    let mut cost = burst_us;
    while cost > 0 {
        let decision = core.ask(Check::new(key.clone(), &pauses, cost), Purpose::CHECK).await?;
        if decision.is_allowed() {
            break;
        }
        // Another pause holds. What it leaves in this bucket is the time by which this pause is longer. It shrinks with
        // every denial, because only other pauses take from it.
        cost = decision.available().unwrap_or(0).min(cost - 1);
    }
    Ok(())
}
