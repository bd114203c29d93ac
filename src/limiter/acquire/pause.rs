//! Pauses that a fleet shares: an upstream's request to wait, kept in the store.
//!
//! A pause is a token bucket of microseconds beside the count of the key. Spending the whole bucket pauses every
//! process for the time in which it fills again. Each check of a process that shares pauses takes one microsecond from
//! the bucket, in the same atomic check as its cost, so a pause needs no further call.

use std::{sync::Arc, time::Duration};

use crate::{
    calls::Purpose,
    check::Check,
    clock::micros,
    error::Error,
    key::Key,
    limiter::{acquire::handle::Acquire, core::Core, handle::Limiter},
    policy::Policy,
};

/// The capacity of the bucket for checks: 1 000 µs, so that checks do not pause each other.
const ROOM_US: u64 = 1_000;

impl Limiter {
    /// Pauses the queue of `key` in this process: its waiters send no check for `time`.
    pub(crate) fn pause(&self, key: &Key, policy: &Policy, time: Duration) {
        self.core.queues.pause(key, policy, time);
        self.core.warn_of_full_pauses();
    }

    /// For how long `key` is still paused in this process, for callers that share pauses or not.
    pub(crate) fn paused(&self, key: &Key, policy: &Policy, shares: bool) -> Option<Duration> {
        self.core.queues.paused_for(key, policy, shares)
    }

    /// Pauses `key` in every process that [shares pauses](Acquire::share_pauses). A longer pause that holds already
    /// stays.
    pub(crate) async fn pause_fleet(&self, key: &Key, policy: &Policy, time: Duration) -> Result<(), Error> {
        begin(&self.core, key, policy, time).await
    }
}

impl<T> Acquire<T> {
    /// Sets whether this process heeds the [pauses of the fleet](Limiter::pause_fleet).
    pub(crate) fn share_pauses(mut self, share: bool) -> Self {
        self.shares_pauses = share;
        self
    }
}

/// Adds the charge that a pause denies.
pub(super) fn heed(check: Check, key: &Key, policy: &Policy) -> Check {
    check.and(key.clone(), &policy.pauses(ROOM_US), 1)
}

async fn begin(core: &Arc<Core>, key: &Key, policy: &Policy, time: Duration) -> Result<(), Error> {
    // The bucket lets checks pass when it has one unit, so the pause has to outlast the room for checks.
    let burst_us = micros(time).saturating_add(ROOM_US).min(Policy::MAX_LIMIT);
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

#[cfg(test)]
mod tests {
    use std::{
        ops::Range,
        sync::{Arc, Mutex},
    };

    use tokio::time::{Instant, advance};

    use super::*;
    use crate::{
        observe::{Event, Observer, Warning},
        store::MemoryStore,
    };

    /// The largest number of paused keys.
    const MOST: u64 = 100_000;
    const HOUR: Duration = Duration::from_secs(3_600);

    #[derive(Clone, Default)]
    struct Warnings(Arc<Mutex<Vec<Warning>>>);

    impl Observer for Warnings {
        fn on_event(&self, event: &Event<'_>) {
            if let Some(warning) = event.warning() {
                self.0.lock().unwrap().push(warning.clone());
            }
        }
    }

    struct Hosts {
        limiter: Limiter,
        policy: Policy,
    }

    impl Hosts {
        fn new(limiter: Limiter) -> Self {
            Self { limiter, policy: Policy::per_second("per-host", 100).unwrap() }
        }

        fn pause(&self, hosts: Range<u64>, time: Duration) {
            hosts.for_each(|host| self.limiter.pause(&Key::from(host), &self.policy, time));
        }

        fn paused(&self, host: u64) -> Option<Duration> {
            self.limiter.paused(&Key::from(host), &self.policy, false)
        }

        /// The time of one pause. The fastest of ten rounds, because other work of the machine delays some of them.
        fn time_of_a_pause(&self, first: u64) -> Duration {
            let time = |round: u64| {
                let (from, started) = (first + 40 * round, std::time::Instant::now());
                self.pause(from..from + 40, HOUR);
                started.elapsed() / 40
            };
            (0..10).map(time).min().unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_takes_no_longer_when_a_hundred_thousand_hosts_are_paused() {
        let hosts = Hosts::new(Limiter::new(MemoryStore::new()).without_notices());
        hosts.pause(0..1_000, HOUR);
        let with_few = hosts.time_of_a_pause(1_000);
        hosts.pause(1_400..MOST + 11_000, HOUR);
        let with_many = hosts.time_of_a_pause(MOST + 11_000);
        assert!(with_many < with_few * 30, "{with_many:?} with many paused hosts, {with_few:?} with few");
    }

    #[tokio::test(start_paused = true)]
    async fn law_6_of_more_than_a_hundred_thousand_pauses_the_first_to_end_is_given_up_with_a_warning() {
        let warnings = Warnings::default();
        let hosts = Hosts::new(Limiter::new(MemoryStore::new()).with_observer(warnings.clone()).without_notices());
        hosts.pause(0..1, HOUR / 2);
        hosts.pause(1..MOST, HOUR);
        hosts.pause(0..MOST, HOUR / 4);
        assert_eq!((hosts.paused(0), &*warnings.0.lock().unwrap()), (Some(HOUR / 2), &vec![]));

        hosts.pause(MOST..MOST + 2, HOUR);
        assert_eq!(*warnings.0.lock().unwrap(), [Warning::pauses_full(100_000)], "once, for two pauses");
        assert_eq!((hosts.paused(0), hosts.paused(MOST)), (None, Some(HOUR)));

        advance(HOUR).await;
        assert_eq!(hosts.paused(MOST), None);
        hosts.pause(0..10, HOUR / 2);
        assert_eq!(hosts.paused(0), Some(HOUR / 2), "pauses that are over make room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_was_given_up_still_holds_the_calls_back_that_wait() {
        let hosts = Hosts::new(Limiter::new(MemoryStore::new()).without_notices());
        hosts.pause(0..1, HOUR / 2);
        let started = Instant::now();
        let mut waiting = Box::pin(hosts.limiter.acquire(Key::from(0_u64), &hosts.policy, 1).within(HOUR));
        tokio::time::timeout(Duration::from_secs(1), &mut waiting).await.unwrap_err();
        hosts.pause(1..MOST + 1, HOUR);
        assert!(waiting.await.unwrap().is_allowed());
        assert!(started.elapsed() >= HOUR / 2, "{:?}", started.elapsed());
    }
}
