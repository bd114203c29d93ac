//! The demand on keys: which of them may need a lease, how large the next block is, and how long blocks last, in units
//! a second.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

use crate::policy::Policy;

/// What the size of a block depends on.
#[derive(Debug)]
pub(super) struct Sizes {
    demand: Meter,
    /// The largest block.
    most: u64,
    /// How long blocks last on a fast network.
    shortest_horizon: Duration,
    /// The units of the last block.
    last_units: u64,
    round_trip: Duration,
    /// When a round trip was measured last.
    measured: Option<Instant>,
    /// The longest round trip with which waiting for a block leaves time to ask the store.
    longest_round_trip: Duration,
    /// No block is requested before this time, because the last request has failed.
    not_before: Option<Instant>,
}

/// The time for which a block lasts, if the window is long enough.
const LONGEST_HORIZON: Duration = Duration::from_millis(8);
pub(super) const SHORTEST_HORIZON: Duration = Duration::from_millis(1);
/// The longest horizon on a slow network.
const LONGEST_ON_SLOW_NETWORK: Duration = Duration::from_millis(50);
/// A block lasts at most this part of the window, because what is spent counts from its settlement.
const HORIZONS_PER_WINDOW: u32 = 250;
/// Blocks last for this number of round trips.
const ROUND_TRIPS: u32 = 3;
/// A smaller block saves no call of the store.
const SMALLEST_BLOCK: u64 = 4;
/// The largest first block, and by how much a block may be larger than the last one.
const FIRST_BLOCK: u64 = 32;
const GROWTH: u64 = 4;
/// The part of the available units that a block takes, as a divisor.
const SHARE: u64 = 4;
/// The part of the deadline that a round trip may take, as a divisor.
const ROUND_TRIPS_PER_DEADLINE: u32 = 4;
/// The time after which a round trip says nothing about the next one. On a network that is always slow, one block in
/// this time is requested in vain.
const MEMORY: Duration = Duration::from_secs(1);
/// No block is requested for this time after a request has failed.
const BACKOFF: Duration = Duration::from_millis(50);

impl Sizes {
    pub(super) fn new(policy: &Policy, deadline: Duration, now: Instant) -> Self {
        Self {
            demand: Meter::new(now),
            most: policy.lease().unwrap_or(0).min(policy.capacity()),
            shortest_horizon: (policy.window_length() / HORIZONS_PER_WINDOW).clamp(SHORTEST_HORIZON, LONGEST_HORIZON),
            last_units: 0,
            round_trip: Duration::ZERO,
            measured: None,
            longest_round_trip: deadline / ROUND_TRIPS_PER_DEADLINE,
            not_before: None,
        }
    }

    /// Counts units that are asked for.
    #[inline]
    pub(super) fn ask(&mut self, units: u64) {
        self.demand.add(units);
    }

    /// The largest block.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// How long a block is to last: long enough for the store to answer meanwhile.
    pub(super) fn horizon(&self, now: Instant) -> Duration {
        self.shortest_horizon.max((self.round_trip(now) * ROUND_TRIPS).min(LONGEST_ON_SLOW_NETWORK))
    }

    /// The units of the next block; 0 if no block is worth a request. `waiting` units are waited for, and `least` by
    /// the first waiter. The store had `available` units left.
    ///
    /// Near the limit, blocks become smaller and smaller. Checks that more than one of them would have to serve ask the
    /// store instead: they would wait for many round trips, and then be denied for units of a block on its way.
    pub(super) fn next(&mut self, waiting: u64, least: u64, available: u64, now: Instant) -> u64 {
        let is_paused = self.not_before.is_some_and(|until| now < until);
        if is_paused || waiting > available / SHARE || self.round_trip(now) > self.longest_round_trip {
            return 0;
        }
        let demand = self.demand.expected(self.horizon(now), now).max(waiting.saturating_mul(2));
        let growth = self.last_units.saturating_mul(GROWTH).max(FIRST_BLOCK);
        let units = demand.min(growth).max(least).min(self.most).min(available / SHARE);
        if units < SMALLEST_BLOCK { 0 } else { units }
    }

    /// Notes the answer to a request for a block.
    pub(super) fn answered(&mut self, units: u64, took: Duration, now: Instant) {
        self.round_trip = match self.measured {
            Some(at) if now.saturating_duration_since(at) > MEMORY => took,
            _ => (self.round_trip * 3 + took) / 4,
        };
        self.measured = Some(now);
        self.last_units = units;
    }

    /// The round trip that is to be expected; 0 if none was measured lately.
    fn round_trip(&self, now: Instant) -> Duration {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) <= MEMORY;
        self.measured.filter(is_recent).map_or(Duration::ZERO, |_| self.round_trip)
    }

    /// Notes that a request has failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + BACKOFF);
    }
}

/// Measures the units that are asked for.
#[derive(Debug)]
struct Meter {
    /// The units a second that were asked for until `since`.
    rate: u64,
    /// The units that were asked for after `since`.
    units: u64,
    since: Instant,
}

/// The shortest time over which a rate is measured.
const SHORTEST_SPAN: Duration = Duration::from_millis(2);
/// The time after which an earlier rate says nothing.
const RATE_MEMORY: Duration = Duration::from_millis(20);

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self { rate: 0, units: 0, since: now }
    }

    pub(super) fn add(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
    }

    /// The units to expect in `time`.
    pub(super) fn expected(&mut self, time: Duration, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.since);
        let fresh = per_second(self.units, elapsed.max(SHORTEST_SPAN));
        let rate = if elapsed < RATE_MEMORY { u64::midpoint(self.rate, fresh).max(fresh) } else { fresh };
        if elapsed >= SHORTEST_SPAN {
            (self.rate, self.units, self.since) = (rate, 0, now);
        }
        let expected = u128::from(rate) * time.as_micros() / 1_000_000;
        u64::try_from(expected).unwrap_or(u64::MAX)
    }
}

fn per_second(units: u64, time: Duration) -> u64 {
    let rate = u128::from(units) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The number of checks within [`SPAN`] after which a key is hot.
const HOT: u64 = 4;
const SPAN: Duration = Duration::from_millis(8);
/// The number of places. A place takes eight bytes, so the sketch takes 32 KB, whatever the number of keys is.
const PLACES: usize = 4_096;

/// Counts the checks of keys without a lease.
///
/// Each key has one place, which it shares with others. A place remembers the last key that was counted there, so a key
/// in a busy place may be found hot late or never. It is then checked in the store, as without a lease.
#[derive(Debug)]
pub(super) struct Demand {
    places: Box<[AtomicU64]>,
    start: Instant,
}

/// What a place remembers: 24 bits of a hash, 32 bits of a time in milliseconds, and a count of 8 bits.
#[derive(Clone, Copy)]
struct Record {
    tag: u64,
    since: u64,
    count: u64,
}

impl Record {
    fn unpack(bits: u64) -> Self {
        Self { tag: bits >> 40, since: (bits >> 8) & u64::from(u32::MAX), count: bits & 0xff }
    }

    fn pack(self) -> u64 {
        self.tag << 40 | self.since << 8 | self.count
    }
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), start: now }
    }

    /// Counts a check of the key with this hash. Returns whether the key is hot.
    pub(super) fn count(&self, hash: u64, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.start).as_millis();
        let now = u64::try_from(elapsed).unwrap_or(u64::MAX) & u64::from(u32::MAX);
        let place = &self.places[usize::try_from(hash % PLACES as u64).unwrap_or(0)];
        // Two checks at the same time may count as one, which delays a lease a little.
        let record = Record::unpack(place.load(Ordering::Relaxed));
        let tag = hash >> 40;
        let is_recent = now.wrapping_sub(record.since) <= SPAN.as_millis() as u64;
        let record = if record.count > 0 && record.tag == tag && is_recent {
            Record { count: (record.count + 1).min(HOT), ..record }
        } else {
            Record { tag, since: now, count: 1 }
        };
        place.store(record.pack(), Ordering::Relaxed);
        record.count >= HOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(units: u64, deadline: Duration, now: Instant) -> Sizes {
        let policy = Policy::per_minute("p", 1_000_000).unwrap().with_lease(units);
        Sizes::new(&policy, deadline, now)
    }

    const DEADLINE: Duration = Duration::from_millis(50);

    #[test]
    fn blocks_grow_with_the_demand_up_to_the_largest_and_shrink_near_the_limit() {
        let now = Instant::now();
        let mut sizes = sizes(1_000, DEADLINE, now);
        assert_eq!(sizes.next(0, 0, 1_000_000, now), 0, "no demand");
        sizes.ask(1_000_000);
        let mut grown = Vec::new();
        for _ in 0..4 {
            let units = sizes.next(0, 0, 1_000_000, now);
            sizes.answered(units, Duration::ZERO, now);
            grown.push(units);
        }
        assert_eq!(grown, [32, 128, 512, 1_000]);
        assert_eq!(sizes.next(0, 0, 400, now), 100, "a quarter of what is available");
        assert_eq!(sizes.next(0, 0, 16, now), 4);
        assert_eq!(sizes.next(0, 0, 15, now), 0, "the last units are charged one by one");
        assert_eq!(sizes.next(100, 1, 400, now), 100);
        assert_eq!(sizes.next(101, 1, 400, now), 0, "a block would not serve all that wait");
    }

    #[test]
    fn no_block_is_requested_after_a_failure_and_for_a_second_after_a_long_round_trip() {
        let now = Instant::now();
        let mut sizes = sizes(1_000, DEADLINE, now);
        sizes.failed(now);
        assert_eq!(sizes.next(10, 1, 1_000_000, now), 0);
        assert_eq!(sizes.next(10, 1, 1_000_000, now + BACKOFF), 20);
        for _ in 0..20 {
            sizes.answered(20, DEADLINE / 2, now);
        }
        assert_eq!(sizes.next(10, 1, 1_000_000, now + MEMORY), 0);
        let later = now + MEMORY + Duration::from_millis(1);
        assert_eq!(sizes.next(10, 1, 1_000_000, later), 20);
        sizes.answered(20, DEADLINE / 2, later);
        assert_eq!(sizes.next(10, 1, 1_000_000, later), 0, "the network is still slow");
    }

    #[test]
    fn blocks_last_eight_milliseconds_or_less_in_a_short_window_and_longer_on_a_slow_network() {
        let now = Instant::now();
        let mut long = sizes(1_000, DEADLINE, now);
        assert_eq!(long.horizon(now), Duration::from_millis(8));
        for _ in 0..40 {
            long.answered(20, Duration::from_millis(10), now);
        }
        assert!(long.horizon(now) > Duration::from_millis(29), "{:?}", long.horizon(now));
        let second = Policy::per_second("p", 1_000).unwrap().with_lease(100);
        assert_eq!(Sizes::new(&second, DEADLINE, now).horizon(now), Duration::from_millis(4));
    }

    const HORIZON: Duration = Duration::from_millis(8);

    #[test]
    fn what_is_expected_follows_what_was_asked_for() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let mut now = start;
        for _ in 0..10 {
            meter.add(500);
            now += Duration::from_millis(5);
            meter.expected(HORIZON, now);
        }
        meter.add(500);
        assert_eq!(meter.expected(HORIZON, now + Duration::from_millis(5)), 800, "100 000 a second");
        assert_eq!(meter.expected(HORIZON, now + Duration::from_secs(1)), 0, "the demand has ended");
    }

    #[test]
    fn a_burst_counts_over_the_shortest_span() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        meter.add(10);
        assert_eq!(meter.expected(HORIZON, start), 40);
        meter.add(u64::MAX);
        assert_eq!(meter.expected(HORIZON, start), u64::MAX / 125, "as many a second as there are numbers");
    }

    #[test]
    fn a_key_is_hot_after_four_checks_within_milliseconds() {
        let start = Instant::now();
        let demand = Demand::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        let hash = 0xfedc_ba98_7654_3210;
        assert_eq!([0, 1, 2, 8].map(|ms| demand.count(hash, at(ms))), [false, false, false, true]);
        assert_eq!([100, 105, 109, 114].map(|ms| demand.count(hash, at(ms))), [false; 4], "too slow");
    }

    #[test]
    fn keys_in_one_place_do_not_add_up() {
        let start = Instant::now();
        let demand = Demand::new(start);
        for _ in 0..100 {
            for tag in [1_u64, 2] {
                assert!(!demand.count(tag << 40, start));
            }
        }
    }
}
