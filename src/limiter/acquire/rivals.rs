//! When the next check of a queue has a chance: as close as possible after the time at which units come back; and what
//! decisions reveal about rivals, which are other processes or callers that spend from the same key.

use std::time::Duration;

use tokio::time::Instant;

use crate::{clock::whole_micros, runtime::random};

/// What the decisions on a key reveal about others who spend from it.
///
/// A process that is alone asks at the exact time and takes all that is available. Among rivals, the heads of several
/// processes would ask at the same time, and the process that is nearest to the store would win each time. So a process
/// with rivals asks a little later, by chance; takes a part of what is available; and lets others go first after it has
/// won.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    /// The number of admissions since a rival was last seen, at most [`ALONE_AFTER`].
    alone_for: u8,
    /// Whether a rival has been seen in the last admissions.
    are_seen: bool,
    /// Whether a rival took the units that this process has been waiting for.
    has_lost: bool,
    /// Whether the last check has passed.
    has_won: bool,
    /// Whether this process lets others go first.
    yields: bool,
}

/// Number of admissions without a sign of rivals after which a process takes itself to be alone.
const ALONE_AFTER: u8 = 4;
/// The part of the available units that a process with rivals takes at once.
const PART: u64 = 16;
/// The part of a wait by which the checks of rivals are spread.
const SPREAD_PART: u32 = 16;
/// The longest time by which the checks of rivals are spread.
const LONGEST_SPREAD: Duration = Duration::from_millis(3);

/// The longest time between two parts of the units that are available. Longer than a process is usually late.
const LONGEST_SPACE: Duration = Duration::from_millis(10);
/// The longest time for which a process lets others go first.
const LONGEST_TURN: Duration = Duration::from_secs(1);

impl Rivals {
    fn are_likely(&self) -> bool {
        self.alone_for < ALONE_AFTER
    }

    /// Records an admission. `seen` says whether units are missing that this process has not spent.
    pub(super) fn won(&mut self, seen: bool) {
        self.alone_for = if seen { 0 } else { (self.alone_for + 1).min(ALONE_AFTER) };
        self.are_seen = seen || self.are_seen && self.are_likely();
        self.yields = self.has_lost;
        self.has_lost = false;
        self.has_won = true;
    }

    /// Records that units were gone that this process had waited for.
    pub(super) fn lost(&mut self) {
        *self = Self { alone_for: 0, are_seen: true, has_lost: true, has_won: false, yields: false };
    }

    /// The units to take at most, of those that are available.
    pub(super) fn share_of(&self, available: u64) -> u64 {
        if self.are_likely() { (available / PART).max(1) } else { available }
    }

    /// How much later than necessary the next check is sent, after a wait of `wait` for units that come back every
    /// `interval`. Without a wait, this is the time since the last admission. `None` without rivals: the check is sent
    /// at the exact time.
    pub(super) fn delay(&mut self, wait: Duration, interval: Duration) -> Option<Duration> {
        if !self.are_likely() {
            return None;
        }
        let turn = if std::mem::take(&mut self.yields) { interval.min(LONGEST_TURN) } else { Duration::ZERO };
        // Units that are there already are taken part by part, so that rivals get theirs meanwhile.
        let most = match wait.is_zero() && self.has_won {
            true => interval.min(if self.are_seen { LONGEST_SPACE } else { LONGEST_SPREAD }),
            false => (wait / SPREAD_PART).min(LONGEST_SPREAD),
        };
        Some(turn.saturating_add(random_up_to(most)))
    }
}

fn random_up_to(most: Duration) -> Duration {
    let random = random::number() >> 32;
    whole_micros(most.mul_f64(random as f64 / f64::from(u32::MAX)))
}

/// By how much checks are sent earlier or later than computed, learned from their results.
///
/// A check is late by the time in which the task wakes and prepares it. It is early if it travels faster than the last
/// one. A check that is early is denied and costs a round trip, so the aim moves by little after a hit and far after a
/// miss: in the long run one check in about [`ROUND_TRIP_PART`] round trips, counted in steps of a hit, is early.
#[derive(Debug, Default)]
pub(super) struct Aim {
    /// Microseconds by which checks are sent earlier than computed. Negative: later.
    lead_us: i64,
    /// The usual difference between the store's clock when it judges a check and the local clock when the check was
    /// sent, in microseconds: the way there, and the difference of the clocks.
    offset: Option<Offset>,
}

#[derive(Clone, Copy, Debug)]
struct Offset {
    /// The local time at which the store's clock showed `store_us`, as far as a check can tell.
    local: Instant,
    store_us: u64,
}

/// The step after a hit, in microseconds.
const STEP_US: i64 = 4;
/// The step after a miss is this part of the round trip.
const ROUND_TRIP_PART: u32 = 16;
/// The longest and the shortest step after a miss, in microseconds.
const MISS_US: (i64, i64) = (30, 1_000);
/// The largest adjustment, in microseconds.
const MOST_US: i64 = 1_000;

/// The part of a new difference that counts for the usual one.
const NEW_PART: i64 = 8;
/// By how much a difference may exceed the round trip before the store's clock was set, in microseconds.
const CLOCK_STEP_US: i64 = 2_000;

impl Aim {
    /// The time at which a check is usually sent that the store judges at `store_us`.
    ///
    /// A check that was held up on its way is judged late. The next one is likely not to be held up, so its time is
    /// computed from here and not from the time at which the last one was sent.
    pub(super) fn usual_start(&mut self, sent: Instant, store_us: u64, round_trip: Duration) -> Instant {
        let usual = self.offset.and_then(|Offset { local, store_us: then_us }| {
            let store = i64::try_from(store_us).ok()?.checked_sub(i64::try_from(then_us).ok()?)?;
            let passed = match sent.checked_duration_since(local) {
                Some(passed) => i64::try_from(passed.as_micros()).ok()?,
                None => -i64::try_from(local.duration_since(sent).as_micros()).ok()?,
            };
            let held_up = store.checked_sub(passed)?;
            let most = i64::try_from(round_trip.as_micros()).ok()?.saturating_add(CLOCK_STEP_US);
            (held_up.abs() <= most).then_some(held_up)
        });
        let Some(held_up) = usual else {
            self.offset = Some(Offset { local: sent, store_us });
            return sent;
        };
        let start = shift(sent, held_up);
        self.offset = Some(Offset { local: shift(start, -held_up / NEW_PART), store_us });
        start
    }

    pub(super) fn adjust(&self, at: Instant) -> Instant {
        shift(at, -self.lead_us)
    }

    /// Records an admission.
    pub(super) fn hit(&mut self) {
        self.lead_us = (self.lead_us + STEP_US).min(MOST_US);
    }

    /// Records that a check was too early.
    pub(super) fn missed(&mut self, round_trip: Duration) {
        let step = i64::try_from((round_trip / ROUND_TRIP_PART).as_micros()).unwrap_or(i64::MAX);
        self.lead_us = (self.lead_us - step.clamp(MISS_US.0, MISS_US.1)).max(-MOST_US);
    }
}

/// The time `by_us` microseconds after `time`; before it if negative.
fn shift(time: Instant, by_us: i64) -> Instant {
    let by = Duration::from_micros(by_us.unsigned_abs());
    let shifted = if by_us < 0 { time.checked_sub(by) } else { time.checked_add(by) };
    shifted.unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(20);

    #[test]
    fn a_process_is_taken_to_be_alone_after_four_admissions_and_not_after_a_loss() {
        let mut rivals = Rivals::default();
        for _ in 0..4 {
            assert!(rivals.are_likely());
            rivals.won(false);
        }
        assert!(!rivals.are_likely());
        assert_eq!(rivals.delay(INTERVAL, INTERVAL), None);
        assert_eq!(rivals.share_of(100), 100);
        rivals.won(true);
        assert!(rivals.are_likely());
        assert_eq!([1, 100, 160].map(|available| rivals.share_of(available)), [1, 6, 10]);
    }

    #[test]
    fn rivals_spread_their_checks_over_a_sixteenth_of_a_wait() {
        let mut rivals = Rivals::default();
        assert_eq!(rivals.delay(Duration::ZERO, INTERVAL), Some(Duration::ZERO), "the first check");
        rivals.won(false);
        let delays = [(); 100].map(|()| rivals.delay(Duration::from_millis(16), INTERVAL).unwrap());
        assert!(delays.iter().all(|delay| *delay <= Duration::from_millis(1)), "{delays:?}");
        assert!(delays.iter().any(|delay| *delay != delays[0]));
    }

    #[test]
    fn a_process_that_has_seen_rivals_leaves_more_space_between_parts_of_what_is_there() {
        for (is_seen, most) in [(true, LONGEST_SPACE), (false, LONGEST_SPREAD)] {
            let mut rivals = Rivals::default();
            rivals.won(is_seen);
            rivals.won(false);
            let delays = [(); 100].map(|()| rivals.delay(Duration::ZERO, LONGEST_TURN).unwrap());
            let longest = delays.into_iter().max().unwrap();
            assert!(most / 3 < longest && longest <= most, "{is_seen}: {longest:?}");
        }
    }

    #[test]
    fn a_process_that_wins_after_a_loss_lets_others_go_first_once() {
        let mut rivals = Rivals::default();
        rivals.lost();
        assert!(rivals.delay(INTERVAL, INTERVAL).unwrap() < INTERVAL);
        rivals.won(false);
        assert!(rivals.delay(INTERVAL, INTERVAL).unwrap() >= INTERVAL);
        assert!(rivals.delay(INTERVAL, INTERVAL).unwrap() < INTERVAL);
        // A turn of hours would look like a stall.
        rivals.lost();
        rivals.won(false);
        let hour = Duration::from_secs(3_600);
        assert!(rivals.delay(hour, hour).unwrap() <= LONGEST_TURN + LONGEST_SPREAD);
    }

    #[test]
    fn checks_are_sent_earlier_after_hits_and_later_after_misses_within_a_millisecond() {
        let (at, most) = (Instant::now() + Duration::from_secs(1), Duration::from_micros(1_000));
        let mut aim = Aim::default();
        assert_eq!(aim.adjust(at), at);
        aim.hit();
        assert!(aim.adjust(at) < at);
        (0..10_000).for_each(|_| aim.hit());
        assert_eq!(aim.adjust(at), at - most);
        (0..100).for_each(|_| aim.missed(Duration::from_secs(1)));
        assert_eq!(aim.adjust(at), at + most);
        let mut aim = Aim::default();
        aim.missed(Duration::from_millis(8));
        assert_eq!(aim.adjust(at), at + Duration::from_micros(500), "a part of the round trip");
    }

    #[test]
    fn a_check_that_was_held_up_does_not_delay_the_next() {
        let (start, round_trip) = (Instant::now() + Duration::from_secs(1), Duration::from_millis(5));
        let mut aim = Aim::default();
        let at = |millis: u64| start + Duration::from_millis(millis);
        // The store's clock is 7 s behind, and the way takes 1 ms.
        let judged = |millis: u64, held_up: u64| 5_000_000 + (millis + 1 + held_up) * 1_000;
        assert_eq!(aim.usual_start(at(0), judged(0, 0), round_trip), at(0));
        assert_eq!(aim.usual_start(at(20), judged(20, 4), round_trip), at(24));
        let next = aim.usual_start(at(40), judged(40, 0), round_trip);
        assert_eq!(next, at(40) - Duration::from_micros(500), "one sample counts little");
        // Sent before the usual time of the last one.
        let earlier = aim.usual_start(at(39), judged(39, 0), round_trip);
        assert!(earlier < at(39) && earlier > at(39) - Duration::from_micros(500));
        // The store's clock is set: what was learned is void.
        assert_eq!(aim.usual_start(at(60), judged(60, 3_600_000), round_trip), at(60));
        assert_eq!(aim.usual_start(at(80), judged(80, 3_600_000), round_trip), at(80));
    }
}
