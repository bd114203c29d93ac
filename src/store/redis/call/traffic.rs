//! The traffic of one runtime with one failure domain, which on a cluster is a group of slots with its own breaker.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::pace::Pace;
use crate::clock::{Clock, SystemClock, micros};
use crate::store::redis::net::{routed::RoutedConnection, slot::SLOT_COUNT, transit::Transit};
use crate::{check::Check, runtime::stalls::Begin};

/// The most charges in one call. They take Redis less than half a millisecond.
pub(crate) const MAX_CHARGES_PER_CALL: usize = 2 * Check::MAX_CHARGES;

/// Counts the answers of a failure domain, and the checks that wait for answers.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// The number of the failure domain.
    domain: usize,
    /// Calls that have been answered.
    answers: AtomicU64,
    /// When the last call was answered.
    answered: Mutex<Option<Begin>>,
    /// How many calls wait for a connection.
    unconnected_calls: AtomicUsize,
    /// Since when there are such calls, by the process's clock.
    unconnected_since_us: AtomicU64,
    /// The connections of the last calls.
    transits: Mutex<Vec<Weak<Transit>>>,
    /// The last times in which calls waited for a connection, the oldest first. None of them touch.
    unconnected: Mutex<Vec<Span>>,
    load: Arc<Load>,
    pace: Arc<Pace>,
}

/// A period by the process's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    from_us: u64,
    until_us: u64,
}

impl Span {
    fn length_us(self) -> u64 {
        self.until_us - self.from_us
    }

    /// The length of what is after `from_us` and before `until_us`.
    fn within_us(self, from_us: u64, until_us: u64) -> u64 {
        self.until_us.min(until_us).saturating_sub(self.from_us.max(from_us))
    }
}

/// The checks of all failure domains of a runtime, because all domains share its threads.
#[derive(Debug, Default)]
struct Load {
    /// Checks that wait or are in flight.
    checks: AtomicUsize,
    /// How often there have come to be too many checks.
    crowds: AtomicU64,
}

/// Shorter waits for a connection are not recorded.
const SHORTEST_DIAL_US: u64 = 1_000;
/// The most waits for a connection that are remembered. Few dials are as short as a millisecond, so a deadline has time
/// for no more.
const MOST_DIALS: usize = 16;
/// With more checks than two full calls carry, checks delay each other.
const UNCROWDED: usize = 2 * MAX_CHARGES_PER_CALL;

impl Traffic {
    /// The traffic of each of `domains` failure domains of one runtime.
    pub(crate) fn of_domains(domains: usize) -> Box<[Arc<Self>]> {
        let load = Arc::<Load>::default();
        (0..domains).map(|domain| Arc::new(Self { domain, load: Arc::clone(&load), ..Self::default() })).collect()
    }

    /// The number of the failure domain.
    pub(super) fn domain(&self) -> usize {
        self.domain
    }

    /// The calls in flight, and how many of them fill the way to Redis.
    pub(super) fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    pub(crate) fn add_check(&self) {
        if self.load.checks.fetch_add(1, Ordering::Relaxed) == UNCROWDED {
            self.load.crowds.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove_checks(&self, count: usize) {
        self.load.checks.fetch_sub(count, Ordering::Relaxed);
    }

    /// Records the answer of a call.
    pub(crate) fn answered(&self) {
        *lock(&self.answered) = Begin::now(Duration::ZERO);
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Records the connection of a call.
    pub(crate) fn sends_over(&self, connection: &RoutedConnection) {
        let Some(transit) = connection.transit() else { return };
        let mut transits = lock(&self.transits);
        if !transits.iter().any(|known| known.as_ptr() == Arc::as_ptr(transit)) {
            transits.retain(|known| known.upgrade().is_some_and(|known| !known.is_closed()));
            transits.push(Arc::downgrade(transit));
        }
    }

    /// Whether a call was answered within `period`. Stalls of the runtime do not count: answers may have come that it
    /// has not read.
    pub(crate) fn has_answered_within(&self, period: Duration) -> bool {
        lock(&self.answered).is_some_and(|answered| answered.running(Instant::now()) < period)
    }

    /// Whether no call has waited for a connection for `period`, and the server owes no answer on any for so long. Then
    /// checks wait because this process has not sent them, or has not read the answers.
    pub(crate) fn owes_no_answer_for(&self, period: Duration) -> bool {
        let is_unconnected = self.unconnected_calls.load(Ordering::Acquire) > 0;
        let unconnected_us = SystemClock.now_us().saturating_sub(self.unconnected_since_us.load(Ordering::Acquire));
        if is_unconnected && unconnected_us >= micros(period) {
            return false;
        }
        let transits = lock(&self.transits);
        let mut open = transits.iter().filter_map(Weak::upgrade).filter(|transit| !transit.is_closed()).peekable();
        open.peek().is_some() && !open.any(|transit| transit.is_silent_for(period))
    }

    /// Records that a call waits for a connection, until the guard is dropped.
    pub(crate) fn awaits_connection(self: &Arc<Self>) -> AwaitsConnection {
        let since_us = SystemClock.now_us();
        if self.unconnected_calls.load(Ordering::Relaxed) == 0 {
            self.unconnected_since_us.store(since_us, Ordering::Release);
        }
        self.unconnected_calls.fetch_add(1, Ordering::Release);
        AwaitsConnection { traffic: Arc::clone(self), since_us }
    }

    /// Records that a call has waited for a connection from `from_us` until now.
    fn connected(&self, from_us: u64) {
        let new = Span { from_us, until_us: SystemClock.now_us() };
        // A connection that is open is there at once.
        if new.length_us() < SHORTEST_DIAL_US {
            return;
        }
        let mut unconnected = lock(&self.unconnected);
        // Calls that waited for the same dial.
        let same = unconnected.extract_if(.., |span| from_us <= span.until_us).map(|span| span.from_us).min();
        if unconnected.len() == MOST_DIALS {
            unconnected.remove(0);
        }
        unconnected.push(Span { from_us: same.map_or(from_us, |same| same.min(from_us)), ..new });
    }

    /// For how long calls have waited for a connection between these times.
    pub(crate) fn unconnected(&self, from_us: u64, until_us: u64) -> Duration {
        Duration::from_micros(lock(&self.unconnected).iter().map(|span| span.within_us(from_us, until_us)).sum())
    }

    /// The checks that wait or are in flight, in all failure domains.
    pub(crate) fn checks(&self) -> usize {
        self.load.checks.load(Ordering::Relaxed)
    }

    /// Whether there are so many checks that they delay each other.
    pub(crate) fn is_crowded(&self) -> bool {
        self.checks() > UNCROWDED
    }

    /// How often the traffic has become crowded.
    pub(crate) fn crowds(&self) -> u64 {
        self.load.crowds.load(Ordering::Relaxed)
    }
}

/// A call that waits for a connection.
pub(crate) struct AwaitsConnection {
    traffic: Arc<Traffic>,
    since_us: u64,
}

impl Drop for AwaitsConnection {
    fn drop(&mut self) {
        self.traffic.unconnected_calls.fetch_sub(1, Ordering::Relaxed);
        self.traffic.connected(self.since_us);
    }
}

/// The number of failure domains of a cluster. A domain is a range of neighbouring slots, and so is what a master
/// usually has: few domains contain slots of two masters. More domains would each have too little traffic for a
/// breaker.
pub(crate) const CLUSTER_DOMAINS: usize = 64;

/// The domain of `slot`, where neighbouring slots form `domains` domains of equal size.
pub(crate) fn domain_of(slot: u16, domains: usize) -> usize {
    usize::from(slot) * domains / usize::from(SLOT_COUNT)
}

fn lock<T>(spans: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock leaves valid spans, so a poisoned lock is usable.
    spans.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::{super::progress::Progress, *};
    use crate::{error::ErrorKind, runtime::world::World, store::contract::DeadlineHandler};

    const DEADLINE: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn law_8_a_check_that_waited_for_a_connection_is_not_one_of_too_many() {
        for (dials, kind) in [(false, ErrorKind::Overloaded), (true, ErrorKind::Deadline)] {
            let (progress, traffic) = (Progress::new(false), Arc::clone(&Traffic::of_domains(1)[0]));
            progress.queued(&traffic);
            let since_us = SystemClock.now_us();
            sleep(DEADLINE);
            if dials {
                traffic.connected(since_us);
            }
            // The first answer on the new connection is one to another check.
            traffic.answered();
            assert_eq!(progress.error(DEADLINE).kind(), kind, "{dials}");
        }
    }

    #[tokio::test]
    async fn law_8_a_check_that_waits_for_one_domain_is_not_one_of_too_many_because_another_domain_answers() {
        for order in [[0, 1], [1, 0]] {
            let (world, domains) = (World::enter(1_000_000, 1), Traffic::of_domains(2));
            let (progress, transit) = (Progress::new(true), Transit::new());
            lock(&domains[1].transits).push(Arc::downgrade(&transit));
            order.iter().for_each(|&domain| progress.queued(&domains[domain]));
            let _awaits_connection = domains[0].awaits_connection();
            world.set_time_us(1_050_000);
            assert_eq!(progress.error(DEADLINE).kind(), ErrorKind::Deadline, "{order:?}");
            // The breaker of each domain learns of that domain alone.
            let kinds = [0, 1].map(|domain| progress.error_in(domain, DEADLINE).kind());
            assert_eq!(kinds, [ErrorKind::Deadline, ErrorKind::Overloaded], "{order:?}");
        }
    }

    #[tokio::test]
    async fn law_14_a_server_owes_no_answer_unless_a_call_has_waited_for_a_connection() {
        let (traffic, transit) = (Arc::clone(&Traffic::of_domains(1)[0]), Transit::new());
        assert!(!traffic.owes_no_answer_for(DEADLINE), "no connection");
        lock(&traffic.transits).push(Arc::downgrade(&transit));
        assert!(traffic.owes_no_answer_for(DEADLINE));
        let awaits_connection = traffic.awaits_connection();
        assert!(traffic.owes_no_answer_for(DEADLINE), "for a moment");
        sleep(DEADLINE);
        assert!(!traffic.owes_no_answer_for(DEADLINE), "for a deadline");
        drop(awaits_connection);
        assert!(traffic.owes_no_answer_for(DEADLINE));
        drop(transit);
        assert!(!traffic.owes_no_answer_for(DEADLINE), "no connection any more");
    }

    #[tokio::test]
    async fn each_connection_of_the_last_calls_is_remembered_once_until_it_ends() {
        let traffic = Traffic::default();
        let remembered = |connection: &RoutedConnection| {
            traffic.sends_over(connection);
            lock(&traffic.transits).len()
        };
        let (first, second) = (RoutedConnection::of_test().await, RoutedConnection::of_test().await);
        assert_eq!([&first, &first, &second, &first, &second].map(remembered), [1, 1, 2, 2, 2]);
        drop(first);
        assert_eq!(remembered(&RoutedConnection::of_test().await), 2);
    }

    #[test]
    fn calls_that_wait_for_one_dial_are_without_a_connection_for_the_whole_of_it() {
        let traffic = Traffic::default();
        let now_us = SystemClock.now_us();
        for ago_us in [40_000, 60_000, 20_000, 500] {
            traffic.connected(now_us - ago_us);
        }
        assert!(traffic.unconnected(now_us - 100_000, now_us) >= Duration::from_millis(60));
        assert_eq!(traffic.unconnected(now_us - 30_000, now_us - 10_000), Duration::from_millis(20));
    }

    #[test]
    fn law_8_a_check_that_waited_for_a_long_dial_is_not_one_of_too_many_after_a_short_one() {
        let traffic = Traffic::default();
        let queued_us = SystemClock.now_us();
        for dial in [DEADLINE, Duration::from_millis(2)] {
            let since_us = SystemClock.now_us();
            sleep(dial);
            traffic.connected(since_us);
            sleep(Duration::from_millis(1));
        }
        // Both dials, however long a busy machine lets this test wait beside them.
        let dialled = traffic.unconnected(queued_us, SystemClock.now_us());
        assert!(dialled >= DEADLINE + Duration::from_millis(2), "{dialled:?}");
    }

    #[test]
    fn the_last_dials_are_remembered_one_by_one() {
        let (traffic, start_us) = (Traffic::default(), SystemClock.now_us());
        for _ in 0..2 * MOST_DIALS {
            let since_us = SystemClock.now_us();
            sleep(Duration::from_millis(1));
            traffic.connected(since_us);
            sleep(Duration::from_micros(10));
        }
        assert_eq!(lock(&traffic.unconnected).len(), MOST_DIALS);
        let dialled = traffic.unconnected(start_us, SystemClock.now_us());
        assert!(dialled >= Duration::from_millis(1) * u32::try_from(MOST_DIALS).unwrap(), "{dialled:?}");
    }

    #[test]
    fn law_8_waits_of_less_than_a_millisecond_displace_no_dial() {
        let (world, traffic) = (World::enter(1_000_000, 1), Traffic::default());
        let dialled = |from_us, until_us| {
            world.set_time_us(until_us);
            traffic.connected(from_us);
            traffic.unconnected(0, until_us)
        };
        assert_eq!(dialled(1_000_000, 1_050_000), DEADLINE);
        for from_us in (1_060_000..).step_by(1_000).take(2 * MOST_DIALS) {
            assert_eq!(dialled(from_us, from_us + SHORTEST_DIAL_US - 1), DEADLINE);
        }
        assert_eq!(dialled(2_000_000, 2_000_000 + SHORTEST_DIAL_US), DEADLINE + Duration::from_millis(1));
    }

    #[test]
    fn checks_of_all_domains_crowd_their_runtime() {
        let domains = Traffic::of_domains(2);
        let seen = || (domains[1].checks(), domains[1].is_crowded(), domains[1].crowds());
        (0..=UNCROWDED).for_each(|_| domains[0].add_check());
        assert_eq!(seen(), (UNCROWDED + 1, true, 1));
        domains[0].remove_checks(1);
        assert_eq!(seen(), (UNCROWDED, false, 1));
    }
}
