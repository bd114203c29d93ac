//! How many calls may be in flight to one failure domain: as many as fill the way to Redis.
//!
//! Over a network a check that has just missed a call would wait for a reply, although neither Redis nor the process is
//! busy. The product of bandwidth and delay tells how many calls keep both busy (RFC 6349, section 1.2): here the time
//! that a call is on its way, divided by the time between two calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::{Clock, SystemClock};

/// With this number of calls in flight, Redis evaluates one call while the next one travels.
pub(super) const LEAST_CALLS: usize = 2;
/// The most calls in flight.
pub(super) const MOST_CALLS: usize = 32;
/// The number of calls that fill a way of a millisecond.
const MANY_CALLS: usize = 7;
/// The time between two calls that fill the way. More calls would save little waiting, and cost Redis and the process
/// more for each check.
const INTERVAL_US: u64 = 200;
/// What Redis and this process need for a call, and for each of its charges, on a machine that they share with others.
const CALL_US: u64 = 30;
const CHARGE_US: u64 = 8;
/// The shortest time of two such periods is what a call takes now.
const NOW_PERIOD_US: u64 = 250_000;
/// With fewer calls, the way is not known: a process that is busy reads a few replies late, but not
/// all of them.
const FEWEST_CALLS: usize = 16;

/// The calls in flight to one failure domain, and the time that they are on their way.
#[derive(Debug)]
pub(super) struct Pace {
    calls: AtomicUsize,
    charges: AtomicUsize,
    /// The most calls in flight that the way allows.
    most: AtomicUsize,
    ways: Mutex<Ways>,
}

impl Default for Pace {
    fn default() -> Self {
        let zero = AtomicUsize::default;
        Self { calls: zero(), charges: zero(), most: AtomicUsize::new(LEAST_CALLS), ways: Mutex::default() }
    }
}

impl Pace {
    /// The pace of a way that this number of calls fills.
    #[cfg(test)]
    pub(super) fn of_calls(most: usize) -> Self {
        Self { most: AtomicUsize::new(most), ..Self::default() }
    }

    fn most_calls(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Whether the way has room for a further call, beside `started` calls of the same slot.
    pub(super) fn has_room(&self, started: usize) -> bool {
        started.max(self.calls.load(Ordering::Relaxed)) < self.most_calls()
    }

    /// Whether the way takes so long that calls need not take turns at a master: it has room for many of them.
    pub(super) fn is_far(&self) -> bool {
        self.most_calls() >= MANY_CALLS
    }

    fn answered(&self, call: &PacedCall) {
        let now_us = SystemClock.now_us();
        let elapsed_us = now_us.saturating_sub(call.at_us);
        // A panic under the lock leaves valid ways.
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.add(elapsed_us, call.work_before_us, work_us(1, call.charges), now_us);
        self.most.store(ways.calls(), Ordering::Relaxed);
    }
}

/// What these calls need in all.
fn work_us(calls: usize, charges: usize) -> u64 {
    let of = |count: usize, each_us: u64| u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(each_us);
    of(calls, CALL_US).saturating_add(of(charges, CHARGE_US))
}

/// A call in flight, until it is dropped.
pub(super) struct PacedCall {
    pace: Arc<Pace>,
    charges: usize,
    at_us: u64,
    /// What all calls need that were in flight when this one was sent, and this one.
    work_before_us: u64,
}

impl PacedCall {
    /// Counts a call that is sent now.
    pub(super) fn new(pace: &Arc<Pace>, charges: usize) -> Self {
        let calls = pace.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let all = pace.charges.fetch_add(charges, Ordering::Relaxed) + charges;
        Self { pace: Arc::clone(pace), charges, at_us: SystemClock.now_us(), work_before_us: work_us(calls, all) }
    }

    /// Records the answer.
    pub(super) fn answered(self) {
        self.pace.answered(&self);
    }
}

impl Drop for PacedCall {
    fn drop(&mut self) {
        let pace = &self.pace;
        pace.calls.fetch_sub(1, Ordering::Relaxed);
        pace.charges.fetch_sub(self.charges, Ordering::Relaxed);
    }
}

/// How long calls take beside what is done for them, and how much that is.
#[derive(Debug)]
struct Ways {
    /// The shortest way of all calls. It is never forgotten: while a fleet keeps Redis busy, no reply shows how short
    /// the way is, and more calls of each process would keep Redis busier. After a failover to a distant server, a
    /// process keeps to few large calls.
    way: Shortest,
    now: Recent,
    /// The work since this time, by the process's clock.
    work_us: u64,
    since_us: u64,
    /// Whether there was more work than time.
    is_busy: bool,
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            way: NONE,
            now: Recent { since_us: 0, current: NONE, before: NONE },
            work_us: 0,
            since_us: 0,
            is_busy: false,
        }
    }
}

impl Ways {
    /// Adds a call that took `elapsed_us`, of which it may have waited `before_us` for its own work and that of others.
    fn add(&mut self, elapsed_us: u64, before_us: u64, work_us: u64, now_us: u64) {
        let way_us = elapsed_us.saturating_sub(before_us);
        // Where work takes most of the time, its estimate tells little of the rest. The way is not longer than all.
        self.way.add(if before_us <= elapsed_us / 2 { way_us } else { elapsed_us });
        self.now.add(way_us, now_us);
        self.work_us += work_us;
        let elapsed_us = now_us.saturating_sub(self.since_us);
        if elapsed_us >= NOW_PERIOD_US {
            self.is_busy = self.work_us > elapsed_us;
            (self.work_us, self.since_us) = (0, now_us);
        }
    }

    /// The number of calls that fill the way. What a call takes longer now than it has to, it waits at Redis or in this
    /// process. More calls would only make that longer, and fewer calls carry more checks each. The same holds if Redis
    /// and this process have enough to do.
    fn calls(&self) -> usize {
        if self.is_busy || self.way.of < FEWEST_CALLS {
            return LEAST_CALLS;
        }
        let waits_us = self.now.shortest_us().saturating_sub(self.way.us);
        let filling = self.way.us.saturating_sub(waits_us) / INTERVAL_US;
        usize::try_from(filling).map_or(MOST_CALLS, |more| MOST_CALLS.min(LEAST_CALLS + more))
    }
}

/// The shortest of the times of one period and the one before it.
#[derive(Debug)]
struct Recent {
    /// When the current period began, by the process's clock.
    since_us: u64,
    current: Shortest,
    before: Shortest,
}

/// The shortest of some times, and how many they are.
#[derive(Clone, Copy, Debug)]
struct Shortest {
    us: u64,
    of: usize,
}

const NONE: Shortest = Shortest { us: u64::MAX, of: 0 };

impl Shortest {
    fn add(&mut self, us: u64) {
        *self = Self { us: self.us.min(us), of: self.of + 1 };
    }
}

impl Recent {
    fn add(&mut self, us: u64, now_us: u64) {
        let age_us = now_us.saturating_sub(self.since_us);
        if age_us >= NOW_PERIOD_US {
            let is_next = age_us < 2 * NOW_PERIOD_US;
            self.before = if is_next { self.current } else { NONE };
            (self.since_us, self.current) = (now_us, NONE);
        }
        self.current.add(us);
    }

    fn shortest_us(&self) -> u64 {
        self.current.us.min(self.before.us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls that fill the way after these: how many, how long each takes, and when.
    fn calls(answers: &[(u64, u64, u64)]) -> usize {
        let mut ways = Ways::default();
        for &(count, way_us, at_us) in answers {
            (0..count).for_each(|number| ways.add(way_us.saturating_add(CALL_US), CALL_US, CALL_US, at_us + number));
        }
        ways.calls()
    }

    #[test]
    fn a_process_with_more_work_than_time_sends_few_large_calls() {
        for (work_us, most) in [(NOW_PERIOD_US / 20, 27), (NOW_PERIOD_US / 5, LEAST_CALLS)] {
            let mut ways = Ways::default();
            (1..=30).for_each(|number| ways.add(5_000, 0, work_us, number * NOW_PERIOD_US / 10));
            assert_eq!(ways.calls(), most, "{work_us}");
        }
    }

    #[test]
    fn the_shortest_way_of_enough_calls_tells_how_many_fill_it() {
        for (way_us, most) in [(0, 2), (199, 2), (200, 3), (1_000, 7), (5_000, 27), (6_000, 32), (u64::MAX, 32)] {
            assert_eq!(calls(&[(20, way_us, 0)]), most, "{way_us}");
            assert_eq!(calls(&[(20, way_us, 0), (20, u64::MAX, 0)]), most, "{way_us}");
        }
        assert_eq!(calls(&[(FEWEST_CALLS as u64 - 1, 5_000, 0)]), LEAST_CALLS);
    }

    #[test]
    fn while_calls_wait_at_redis_or_in_a_busy_process_fewer_are_started() {
        let quiet = (20, 5_000, 0);
        for (now_us, most) in [(5_000, 27), (7_000, 17), (10_000, 2), (60_000, 2)] {
            assert_eq!(calls(&[quiet, (20, now_us, 2 * NOW_PERIOD_US), (20, now_us, 4 * NOW_PERIOD_US)]), most);
        }
        // As long as the period before counts, one slow call says nothing.
        for (at_us, most) in [(NOW_PERIOD_US, 27), (NOW_PERIOD_US * 3 / 2, 27), (NOW_PERIOD_US * 2, LEAST_CALLS)] {
            assert_eq!(calls(&[quiet, (1, 60_000, at_us)]), most, "{at_us}");
        }
        // A short way stays one, however busy the process is.
        assert_eq!(calls(&[(20, 100, 0), (20, 9_000, 2 * NOW_PERIOD_US)]), LEAST_CALLS);
    }

    #[test]
    fn a_burst_of_work_tells_nothing_of_the_way() {
        let mut ways = Ways::default();
        (0..20).for_each(|number| ways.add(5_000, 100, 100, number));
        (0..20).for_each(|number| ways.add(6_000, 5_600, 100, number));
        assert_eq!(ways.calls(), 26);
    }

    #[test]
    fn a_fleet_that_keeps_redis_busy_does_not_make_the_way_longer() {
        let hour = (1..4 * 3_600).map(|number| (20, 3_000, number * NOW_PERIOD_US));
        assert_eq!(calls(&[(20, 100, 0)].into_iter().chain(hour).collect::<Vec<_>>()), LEAST_CALLS);
    }
}
