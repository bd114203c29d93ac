//! The demand on the key of a lease: whether the next block pays, how large it is, and how long blocks last.

use std::time::Duration;

use tokio::time::Instant;

use super::meter::{Demanded, Meter};
use crate::policy::Policy;

/// What the size of a block depends on.
#[derive(Debug)]
pub(super) struct Sizes {
    demand: Meter,
    /// The largest block.
    pub(super) most: u64,
    /// How long blocks last on a fast network.
    usual_horizon: Duration,
    /// How long they last near the limit.
    short_horizon: Duration,
    capacity: u64,
    window: Duration,
    /// Until when the limit is near.
    near_until: Option<Instant>,
    /// The units of the last block.
    pub(super) last_units: u64,
    /// An average of the last answers of the store. `None` before the first one.
    round_trip: Option<Duration>,
    /// The deadline of the store.
    pub(super) deadline: Duration,
    /// No block is requested before this time, because the last request has failed.
    not_before: Option<Instant>,
}

/// The longest time for which a block lasts. A block is settled after twice this time at the latest.
const LONGEST_HORIZON: Duration = Duration::from_secs(2);
pub(super) const SHORTEST_HORIZON: Duration = Duration::from_millis(1);
/// The longest horizon on a slow network, if the window asks for none that is longer.
const LONGEST_ON_SLOW_NETWORK: Duration = Duration::from_millis(50);
/// A block lasts at most this part of the window, because what is spent counts from its settlement.
const HORIZONS_PER_WINDOW: u32 = 30;
/// As `HORIZONS_PER_WINDOW`, near the limit: there, a unit that counts for longer is missing to other checks.
const SHORT_HORIZONS_PER_WINDOW: u32 = 250;
/// A block lasts at most this part of the time-to-live of its hold.
pub(super) const HORIZONS_PER_TTL: u32 = 4;
/// Blocks last for this number of round trips.
const ROUND_TRIPS: u32 = 3;
/// The checks that a block has to save. To hold and to settle it costs the store as much as 10 to 15 checks, and this
/// process some more.
const PAYS: u64 = 16;
/// A smaller block saves no call of the store.
const SMALLEST_BLOCK: u64 = 4;
/// The checks of the largest first block, and by how much a block may be larger than the last one.
const FIRST_BLOCK: u64 = 32;
const GROWTH: u64 = 4;
/// The part of the available units that a block takes, as a divisor.
const SHARE: u64 = 4;
/// The part of the deadline that a round trip may take on a fast network, as a divisor: there, a check can give blocks
/// back and ask the store again, or wait for a block and then ask.
const ROUND_TRIPS_PER_DEADLINE: u32 = 4;
/// A lease is kept for twice this time at least without a block.
const SHORTEST_WITHOUT_BLOCKS: Duration = Duration::from_secs(1);
/// A lease is kept for this time at least without a check.
const SHORTEST_IDLE: Duration = Duration::from_millis(100);
/// No block is requested for this time after a request has failed.
const BACKOFF: Duration = Duration::from_millis(50);

impl Sizes {
    /// `asked` is what the key was asked for in the last time of a block.
    pub(super) fn new(policy: &Policy, asked: Demanded, deadline: Duration, now: Instant) -> Self {
        Self {
            demand: Meter::new(usual_horizon(policy), asked, now),
            most: policy.lease().unwrap_or(0).min(policy.capacity()),
            usual_horizon: usual_horizon(policy),
            short_horizon: (policy.window_length() / SHORT_HORIZONS_PER_WINDOW).max(SHORTEST_HORIZON),
            capacity: policy.capacity(),
            window: policy.window_length(),
            near_until: None,
            last_units: 0,
            round_trip: None,
            deadline,
            not_before: None,
        }
    }

    /// Counts a check that asks for units.
    #[inline]
    pub(super) fn ask(&mut self, units: u64) {
        self.demand.add(units);
    }

    /// How long a block is to last: long enough for the store to answer meanwhile.
    pub(super) fn horizon(&self, now: Instant) -> Duration {
        let of_network = self.round_trip.unwrap_or_default() * ROUND_TRIPS;
        self.base_horizon(now).max(of_network.min(LONGEST_ON_SLOW_NETWORK))
    }

    /// How long a block lasts on a fast network.
    fn base_horizon(&self, now: Instant) -> Duration {
        if self.is_near(now) { self.short_horizon.min(self.usual_horizon) } else { self.usual_horizon }
    }

    fn is_near(&self, now: Instant) -> bool {
        self.near_until.is_some_and(|until| now < until)
    }

    /// How long a lease is kept without a check: longer than checks are apart for which a block pays.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        (self.base_horizon(now) / 2).max(SHORTEST_IDLE)
    }

    /// How long a lease is kept without a block: longer than a slow network or a failure keeps blocks away.
    pub(super) fn longest_without_blocks(&self) -> Duration {
        (self.usual_horizon / 2).max(SHORTEST_WITHOUT_BLOCKS).saturating_mul(2)
    }

    /// The units of the next block; 0 if no block pays. `waiting` is what waits, and `least` are the units of the first
    /// waiter. The store had `available` units left.
    ///
    /// Near the limit, blocks become smaller and smaller. Checks that more than one of them would have to serve ask the
    /// store instead: they would wait for many round trips, and then be denied for units of a block on its way. On a
    /// slow network there are none near the limit, because a denied check has no time to give them back and ask again.
    pub(super) fn next(&mut self, waiting: Demanded, least: u64, available: u64, now: Instant) -> u64 {
        let is_paused = self.not_before.is_some_and(|until| now < until);
        if is_paused || (self.is_slow() && self.is_near(now)) || waiting.units > available / SHARE {
            return 0;
        }
        let expected = self.demand.expected(self.horizon(now), now).max(waiting.twice());
        if expected.checks < PAYS {
            return 0;
        }
        let a_check = (expected.units / expected.checks).max(1);
        let growth = self.last_units.saturating_mul(GROWTH).max(a_check.saturating_mul(FIRST_BLOCK));
        let units = expected.units.min(growth).max(least).min(self.most).min(available / SHARE);
        let enough = a_check.saturating_mul(PAYS).min(self.most).max(SMALLEST_BLOCK);
        if units < enough { 0 } else { units }
    }

    /// Notes how long an answer of the store took.
    pub(super) fn answered(&mut self, took: Duration) {
        self.round_trip = Some(self.round_trip.map_or(took, |known| (known * 3 + took) / 4));
    }

    /// Whether a check that has waited for a block would have no time to ask the store.
    pub(super) fn is_slow(&self) -> bool {
        self.round_trip.is_some_and(|time| time > self.deadline / ROUND_TRIPS_PER_DEADLINE)
    }

    /// Notes what the store has said about a check or a block. The limit is near if it was denied, or if less than half
    /// is available: until a window has passed.
    pub(super) fn learned(&mut self, fits: bool, available: u64, now: Instant) {
        if !fits || available < self.capacity / 2 {
            self.near_until = now.checked_add(self.window);
        }
    }

    /// Notes that a request has failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + BACKOFF);
    }
}

/// How long a block under this policy is to last on a fast network.
pub(super) fn usual_horizon(policy: &Policy) -> Duration {
    let of_ttl = policy.holds().map_or(Duration::MAX, |holds| holds.ttl() / HORIZONS_PER_TTL);
    (policy.window_length() / HORIZONS_PER_WINDOW).min(of_ttl).clamp(SHORTEST_HORIZON, LONGEST_HORIZON)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(units: u64, deadline: Duration, now: Instant) -> Sizes {
        let policy = Policy::per_minute("p", 1_000_000).unwrap().with_lease(units);
        Sizes::new(&policy, NOBODY, deadline, now)
    }

    const DEADLINE: Duration = Duration::from_millis(50);
    const PLENTY: u64 = 1_000_000;
    const SECOND: Duration = Duration::from_secs(1);

    fn ask(sizes: &mut Sizes, checks: u64, units: u64) {
        (0..checks).for_each(|_| sizes.ask(units));
    }

    fn waiting(checks: u64, units: u64) -> Demanded {
        Demanded { units, checks }
    }

    const NOBODY: Demanded = Demanded { units: 0, checks: 0 };

    #[test]
    fn blocks_grow_with_the_demand_up_to_the_largest_and_shrink_near_the_limit() {
        let now = Instant::now();
        let mut sizes = sizes(1_000, DEADLINE, now);
        assert_eq!(sizes.next(NOBODY, 0, PLENTY, now), 0, "no demand");
        ask(&mut sizes, 100_000, 1);
        let mut grown = Vec::new();
        for _ in 0..4 {
            let units = sizes.next(NOBODY, 0, PLENTY, now);
            sizes.last_units = units;
            grown.push(units);
        }
        assert_eq!(grown, [32, 128, 512, 1_000]);
        assert_eq!(sizes.next(NOBODY, 0, 400, now), 100, "a quarter of what is available");
        assert_eq!(sizes.next(NOBODY, 0, 64, now), 16);
        assert_eq!(sizes.next(NOBODY, 0, 63, now), 0, "the last units are charged one by one");
        assert_eq!(sizes.next(waiting(100, 100), 1, 400, now), 100);
        assert_eq!(sizes.next(waiting(101, 101), 1, 400, now), 0, "a block would not serve all that wait");
    }

    #[test]
    fn a_block_has_to_save_sixteen_checks_whatever_they_cost() {
        let now = Instant::now();
        for cost in [1, 50] {
            let mut sizes = sizes(1_000, DEADLINE, now);
            ask(&mut sizes, 7, cost);
            assert_eq!(sizes.next(NOBODY, 0, PLENTY, now), 0, "14 checks within the time of a block");
            ask(&mut sizes, 1, cost);
            assert_eq!(sizes.next(NOBODY, 0, PLENTY, now), 16 * cost);
            assert_eq!(sizes.next(NOBODY, 0, 64 * cost - 1, now), 0, "near the limit");
        }
    }

    #[test]
    fn a_lease_that_permits_only_a_few_units_takes_blocks_of_these() {
        let now = Instant::now();
        for (most, taken) in [(5, 5), (3, 0)] {
            let mut sizes = sizes(most, DEADLINE, now);
            ask(&mut sizes, 100, 1);
            assert_eq!(sizes.next(NOBODY, 0, PLENTY, now), taken);
        }
    }

    #[test]
    fn no_block_is_requested_after_a_failure_and_near_the_limit_on_a_slow_network() {
        let now = Instant::now();
        let mut sizes = sizes(1_000, DEADLINE, now);
        sizes.failed(now);
        let ten = waiting(10, 10);
        assert_eq!(sizes.next(ten, 1, PLENTY, now), 0);
        assert_eq!(sizes.next(ten, 1, PLENTY, now + BACKOFF), 20);
        let later = now + SECOND;
        sizes.answered(DEADLINE / 3);
        assert!(sizes.is_slow());
        assert_eq!(sizes.next(ten, 1, PLENTY, later), 20, "far from the limit");
        sizes.learned(false, PLENTY, later);
        assert_eq!(sizes.next(ten, 1, PLENTY, later), 0, "near the limit");
        // A fast answer beside the slow one.
        (0..2).for_each(|_| sizes.answered(Duration::ZERO));
        assert!(!sizes.is_slow());
        assert_eq!(sizes.next(ten, 1, PLENTY, later), 20);
    }

    #[test]
    fn blocks_last_a_part_of_the_window_and_of_their_time_to_live_and_longer_on_a_slow_network() {
        let horizon =
            |policy: Policy| Sizes::new(&policy.with_lease(100), NOBODY, DEADLINE, Instant::now()).usual_horizon;
        let of_window = |seconds| horizon(Policy::new("p", 1_000, Duration::from_secs(seconds)).unwrap());
        assert_eq!([1, 12, 60, 3_600].map(of_window).map(|horizon| horizon.as_millis()), [33, 400, 2_000, 2_000]);
        let holds = crate::policy::HoldSettings::new().with_ttl(Duration::from_secs(1));
        assert_eq!(horizon(Policy::per_hour("p", 1_000).unwrap().with_holds(holds)), Duration::from_millis(250));

        let now = Instant::now();
        let mut near = sizes(1_000, DEADLINE, now);
        near.learned(true, PLENTY / 2, now);
        assert_eq!(near.horizon(now), Duration::from_secs(2), "half is left");
        near.learned(true, PLENTY / 2 - 1, now);
        assert_eq!(near.horizon(now), Duration::from_millis(240));
        near.learned(false, PLENTY, now + SECOND);
        assert_eq!(near.horizon(now + 60 * SECOND), Duration::from_millis(240));
        assert_eq!(near.horizon(now + 61 * SECOND), Duration::from_secs(2));
        let idle = [60, 61].map(|seconds| near.idle(now + seconds * SECOND));
        assert_eq!(idle, [120, 1_000].map(Duration::from_millis), "near the limit, and far from it");
        assert_eq!(near.longest_without_blocks(), 2 * SECOND);

        let per_second = Policy::per_second("p", 1_000).unwrap().with_lease(100);
        let mut slow = Sizes::new(&per_second, NOBODY, DEADLINE, now);
        for _ in 0..40 {
            slow.answered(Duration::from_millis(10));
        }
        assert!(slow.horizon(now) > Duration::from_millis(29), "{:?}", slow.horizon(now));
    }
}
