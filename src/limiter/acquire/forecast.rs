//! Forecasts: when units come back, according to the last decision; and the decisions of waiters that are made from
//! them.

use std::time::Duration;

use tokio::time::Instant;

use crate::decision::{Decision, PolicyDecision, Source};
use crate::policy::{Algorithm, Policy};
use crate::{clock::micros, limiter::acquire::waiter::Waiter};

/// What the last decision on a key says about the time after it, if no other caller spends.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    /// The policy of the decision. A policy with another limit may share the count and has other waits.
    policy: Policy,
    /// When the check was sent, or would usually have been sent. Waits count from here and not from the reply. A check
    /// that is sent `wait` later also arrives `wait` later, whatever the round trip is.
    pub(super) sent: Instant,
    /// The time of the decision by the store's clock.
    pub(super) time_us: u64,
    available: u64,
    next: Duration,
    reset: Duration,
    /// A cost that was denied, and the time until this cost fits.
    denied: Option<(u64, Duration)>,
}

/// By how much waits may differ that are computed in another order.
const ROUNDING: Duration = Duration::from_micros(10);

impl Forecast {
    /// `None` for a decision without a verdict.
    pub(super) fn of(decision: &Decision, sent: Instant) -> Option<Self> {
        let standing = decision.policies().first()?;
        Some(Self {
            policy: standing.policy.clone(),
            sent,
            time_us: decision.time_us()?,
            available: standing.available,
            next: standing.next,
            reset: standing.reset,
            denied: standing.retry_after.map(|wait| (standing.cost, wait)),
        })
    }

    /// Whether the forecast is worth keeping when no caller waits: the next caller then knows when to ask. Not for
    /// long, because another process may reset the count.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        const FRESH: Duration = Duration::from_secs(1);
        now < self.next_at().min(after(self.sent, FRESH))
    }

    pub(super) fn is_of(&self, policy: &Policy) -> bool {
        self.policy == *policy
    }

    /// The units that are available at `now`, if no other caller spends.
    pub(super) fn available_at(&self, now: Instant) -> u64 {
        self.available_after(now.saturating_duration_since(self.sent))
    }

    /// Whether `decision` on a check of `cost` shows that another caller has spent. Judged by the store's clock,
    /// because checks may be held up on their way.
    pub(super) fn is_disproved_by(&self, decision: &Decision, cost: u64) -> bool {
        let (Some(standing), Some(time_us)) = (decision.policies().first(), decision.time_us()) else { return false };
        if standing.policy != self.policy || !self.is_certain() {
            return false;
        }
        let passed = Duration::from_micros(time_us.saturating_sub(self.time_us));
        if decision.is_allowed() {
            return standing.available.saturating_add(cost) < self.available_after(passed);
        }
        let expected = self.longest_wait(cost).saturating_add(ROUNDING);
        standing.retry_after.is_some_and(|wait| passed.saturating_add(wait) > expected)
    }

    /// The time after which `units` fit for certain, if no other caller spends. A log and a counter say when the first
    /// unit comes back, when a denied cost fits, and when all is free: a cost in between fits by then, and a process
    /// that is denied it earlier has no rivals for that.
    fn longest_wait(&self, units: u64) -> Duration {
        let is_exact = matches!(self.policy.algorithm(), Algorithm::TokenBucket | Algorithm::FixedWindow);
        if is_exact || units <= self.available.saturating_add(1) {
            return self.wait(units);
        }
        let denied = self.denied.filter(|(cost, _)| units <= *cost).map(|(_, wait)| wait);
        denied.unwrap_or(self.reset).min(self.reset)
    }

    fn available_after(&self, passed: Duration) -> u64 {
        let returned = match passed.checked_sub(self.next) {
            None => 0,
            Some(_) if self.next.is_zero() => 0,
            // A bucket gains further units at a steady rate.
            Some(more) if self.policy.algorithm() == Algorithm::TokenBucket => {
                1 + more.as_micros() * u128::from(self.policy.limit()) / self.policy.window_length().as_micros()
            }
            Some(_) => 1,
        };
        let returned = u64::try_from(returned).unwrap_or(u64::MAX);
        self.available.saturating_add(returned).min(self.policy.capacity())
    }

    /// Whether the waits are certain. Those of one shard of several are not, because another shard may have room
    /// earlier. Those beside holds are not, because a hold may end at any time. Nobody waits for a shadow policy.
    pub(super) fn is_certain(&self) -> bool {
        !self.policy.is_sharded() && self.policy.holds().is_none() && !self.policy.is_shadow()
    }

    /// The earliest time at which checks of `units` in all can have passed, one after the other.
    pub(super) fn earliest(&self, units: u64) -> Instant {
        let denied = self.denied.filter(|(cost, wait)| units >= *cost && is_caused_by_charges(&self.policy, *wait));
        let computed = if self.is_certain() { self.wait(units) } else { Duration::ZERO };
        after(self.sent, denied.map_or(computed, |(_, wait)| wait.max(computed)))
    }

    /// When the count is empty, if no caller spends.
    fn reset_at(&self) -> Instant {
        after(self.sent, self.reset)
    }

    /// When more becomes available.
    fn next_at(&self) -> Instant {
        after(self.sent, self.next)
    }

    fn wait(&self, units: u64) -> Duration {
        if units <= self.available {
            return Duration::ZERO;
        }
        let (limit, window) = (self.policy.limit(), self.policy.window_length());
        // The number of units that have to come back after the first one that comes back.
        let more = units - self.available - 1;
        let windows = |count: u64| Duration::from_micros(self.policy.shortest_window_us().saturating_mul(count));
        match self.policy.algorithm() {
            Algorithm::TokenBucket => {
                let micros = u128::from(more) * window.as_micros() / u128::from(limit);
                self.next.saturating_add(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
            }
            Algorithm::FixedWindow => self.next.saturating_add(windows(more / limit)),
            // The log admits at most the limit in any window.
            Algorithm::SlidingWindowLog => self.next.max(windows((units - 1) / limit)),
            // The counter admits at most the limit between two boundaries. The first boundary may be near.
            Algorithm::SlidingWindowCounter => self.next.max(windows(((units - 1) / limit).saturating_sub(1))),
        }
    }
}

/// Whether a denial with this wait is certain, because charges cause it and no holds: a wait for holds is at most as
/// long as they typically last.
pub(super) fn is_caused_by_charges(policy: &Policy, wait: Duration) -> bool {
    let is_beyond_holds = policy.holds().is_none_or(|holds| wait > holds.typical_duration());
    is_beyond_holds && !policy.is_sharded() && !policy.is_shadow()
}

/// `wait` after `time`. A time that cannot be represented is taken as one that is far away.
pub(super) fn after(time: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(366 * 86_400);
    time.checked_add(wait.min(FAR)).unwrap_or(time)
}

/// The decision of a check that charged for several waiters, or that a pause has denied, for one waiter of `cost`.
pub(super) fn for_waiter(decision: &Decision, cost: u64) -> Decision {
    let Some(standing) = decision.policies().first() else { return decision.clone() };
    let retry_after = decision.retry_after();
    let standing = PolicyDecision { cost, violated: !decision.is_allowed(), retry_after, ..standing.clone() };
    Decision::on_waiter(decision.is_allowed(), decision.source(), decision.time_us().unwrap_or(0), Some(standing))
}

/// The denial of a waiter whom the queue itself refuses. `wait` is the time until the waiter can pass. Unless the store
/// `has_answered`, nothing is known about the key without a forecast.
pub(super) fn by_queue(
    waiter: &Waiter,
    source: Source,
    forecast: Option<&Forecast>,
    has_answered: bool,
    wait: Duration,
    now: Instant,
) -> Decision {
    if forecast.is_none() && wait.is_zero() && !has_answered {
        return Decision::on_waiter(false, source, 0, None);
    }
    // Without a forecast, a pause is what keeps the waiter back.
    let left = |until: fn(&Forecast) -> Instant| forecast.map_or(wait, |of| until(of).saturating_duration_since(now));
    let (policy, cost) = waiter.delayed_by();
    let standing = PolicyDecision {
        policy: policy.clone(),
        cost,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limiter, ManualClock, MemoryStore, policy::HoldSettings};

    /// Spends one unit after the other as early as the store lets it, and returns when the last one passed.
    fn spend(limiter: &Limiter, clock: &ManualClock, policy: &Policy, units: u64) -> Duration {
        let mut waited = Duration::ZERO;
        for _ in 0..units {
            while let Some(wait) = limiter.try_check("k", policy, 1).unwrap().retry_after() {
                clock.advance(wait);
                waited += wait;
            }
        }
        waited
    }

    #[test]
    fn no_units_pass_earlier_than_forecast() {
        let base = Policy::new("p", 7, Duration::from_millis(1_000)).unwrap();
        let bucket = |burst| base.clone().with_algorithm(Algorithm::TokenBucket).with_burst(burst);
        let policies = [
            base.clone(),
            base.clone().with_resolution(Duration::from_millis(90)),
            base.clone().with_algorithm(Algorithm::FixedWindow),
            base.clone().with_algorithm(Algorithm::SlidingWindowCounter),
            bucket(1),
            bucket(4),
            bucket(20),
        ];
        for policy in &policies {
            for (spent, passed_ms) in [(1, 0), (1, 100), (3, 450), (7, 0), (7, 999), (5, 130), (9, 40)] {
                for units in [1, 2, 3, 7, 8, 15, 29] {
                    let clock = ManualClock::default();
                    let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
                    spend(&limiter, &clock, policy, spent);
                    clock.advance(Duration::from_millis(passed_ms));
                    let decision = limiter.try_check("k", policy, 1).unwrap();
                    let sent = Instant::now();
                    let forecast = Forecast::of(&decision, sent).unwrap();
                    let earliest = forecast.earliest(units) - sent;
                    let passed = spend(&limiter, &clock, policy, units);
                    let of = (policy, spent, passed_ms, units);
                    assert!(earliest <= passed, "{earliest:?} {passed:?} {of:?}");
                    if policy.algorithm() == Algorithm::TokenBucket {
                        // Exact, but for the rounding of each wait.
                        assert!(passed - earliest <= Duration::from_micros(units), "{earliest:?} {passed:?} {of:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rivals_are_seen_in_what_is_missing() {
        let policy = Policy::per_second("p", 7).unwrap().with_algorithm(Algorithm::TokenBucket);
        for (own, rival, ahead_ms) in [(2, 0, 0), (2, 0, 700), (2, 1, 0), (2, 2, 300), (2, 7, 10), (7, 0, 0), (7, 1, 0)]
        {
            let clock = ManualClock::default();
            let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
            let forecast = Forecast::of(&limiter.try_check("k", &policy, own).unwrap(), Instant::now()).unwrap();
            spend(&limiter, &clock, &policy, rival);
            clock.advance(Duration::from_millis(ahead_ms));
            let decision = limiter.try_check("k", &policy, 3).unwrap();
            assert_eq!(forecast.is_disproved_by(&decision, 3), rival > 0, "{own} {rival} {ahead_ms}");
        }
    }

    #[test]
    fn a_larger_cost_that_a_log_denies_when_the_first_units_are_back_reveals_no_rival() {
        let policy = Policy::per_second("p", 7).unwrap();
        for (rival, cost) in [(0, 1), (0, 5), (0, 7), (3, 1), (7, 5)] {
            let clock = ManualClock::default();
            let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
            spend(&limiter, &clock, &policy, 3);
            clock.advance(Duration::from_millis(300));
            spend(&limiter, &clock, &policy, 4);
            let denied = limiter.try_check("k", &policy, cost).unwrap();
            let forecast = Forecast::of(&denied, Instant::now()).unwrap();
            // Three units are back.
            clock.advance(Duration::from_millis(700));
            spend(&limiter, &clock, &policy, rival);
            let next = limiter.try_check("k", &policy, 6).unwrap();
            assert_eq!(forecast.is_disproved_by(&next, 6), rival > 0, "{rival} {cost}");
            let same = limiter.try_check("k", &policy, cost).unwrap();
            assert_eq!(forecast.is_disproved_by(&same, cost), rival > 0, "{rival} {cost}");
        }
    }

    /// The wait says nothing about fewer units. Another shard may have room, and a hold may end at any time.
    #[test]
    fn the_wait_of_a_denial_is_certain_without_shards_and_if_it_is_longer_than_holds_usually_last() {
        let (plain, wait, now) = (Policy::per_minute("p", 10).unwrap(), Duration::from_secs(9), Instant::now());
        let holding = |typical| plain.clone().with_holds(HoldSettings::new().with_typical_duration(typical));
        let cases = [
            (plain.clone(), 3, true),
            (plain.clone(), 2, false),
            (plain.clone().with_shards(2), 3, false),
            (plain.clone().with_shadow(true), 3, false),
            (holding(wait), 3, false),
            (holding(wait - Duration::from_micros(1)), 3, true),
        ];
        let spent = Limiter::new(MemoryStore::new()).try_check("k", &plain, 10).unwrap().policies()[0].clone();
        for (policy, units, is_certain) in cases {
            let (retry_after, next) = (Some(wait), Duration::ZERO);
            let standing = PolicyDecision { policy: policy.clone(), cost: 3, retry_after, next, ..spent.clone() };
            let decision = Decision::on_waiter(false, Source::Store, 1_000_000, Some(standing));
            let earliest = Forecast::of(&decision, now).unwrap().earliest(units) - now;
            assert_eq!(earliest == wait, is_certain, "{units} {policy:?}: {earliest:?}");
        }
    }

    #[test]
    fn a_forecast_is_kept_for_a_second_at_most_and_until_more_becomes_available() {
        let now = Instant::now();
        for (window_ms, kept_ms) in [(60_000, 1_000), (300, 300)] {
            let limiter = Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
            let policy = Policy::new("p", 1, Duration::from_millis(window_ms)).unwrap();
            let forecast = Forecast::of(&limiter.try_check("k", &policy, 1).unwrap(), now).unwrap();
            let end = now + Duration::from_millis(kept_ms);
            assert!(forecast.is_fresh(end - Duration::from_micros(1)) && !forecast.is_fresh(end), "{window_ms}");
        }
    }

    #[test]
    fn a_bucket_is_known_to_gain_units_at_its_rate_and_a_log_to_gain_one() {
        let (log, now) = (Policy::per_second("p", 10).unwrap(), Instant::now());
        let bucket = log.clone().with_algorithm(Algorithm::TokenBucket).with_burst(10);
        for (policy, expected) in [(log, [0, 0, 0, 1]), (bucket, [0, 1, 3, 10])] {
            let limiter = Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
            let forecast = Forecast::of(&limiter.try_check("k", &policy, 10).unwrap(), now).unwrap();
            let available = [99, 100, 350, 5_000].map(|ms| forecast.available_at(now + Duration::from_millis(ms)));
            assert_eq!(available, expected, "{policy:?}");
        }
    }

    #[test]
    fn a_time_that_cannot_be_represented_is_far_away() {
        let now = Instant::now();
        assert!(after(now, Duration::MAX) > now + Duration::from_secs(86_400));
    }
}
