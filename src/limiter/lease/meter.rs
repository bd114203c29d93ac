//! Measures what a key is asked for.

use std::time::Duration;

use tokio::time::Instant;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Demanded {
    pub(super) units: u64,
    pub(super) checks: u64,
}

impl Demanded {
    pub(super) fn twice(self) -> Self {
        Self { units: self.units.saturating_mul(2), checks: self.checks.saturating_mul(2) }
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self { units: self.units.max(other.units), checks: self.checks.max(other.checks) }
    }

    fn midpoint(self, other: Self) -> Self {
        Self { units: u64::midpoint(self.units, other.units), checks: u64::midpoint(self.checks, other.checks) }
    }

    /// What is asked for in `time`, if this is asked for in `span`.
    fn scaled(self, time: Duration, span: Duration) -> Self {
        let scaled = |number: u64| {
            let number = u128::from(number) * time.as_micros() / span.as_micros().max(1);
            u64::try_from(number).unwrap_or(u64::MAX)
        };
        Self { units: scaled(self.units), checks: scaled(self.checks) }
    }
}

/// Measures what is asked for.
#[derive(Debug)]
pub(super) struct Meter {
    /// What was asked for in a second until `since`.
    rate: Demanded,
    /// What was asked for after `since`.
    fresh: Demanded,
    since: Instant,
    /// The shortest time over which a rate is measured.
    shortest_span: Duration,
    /// The time after which an earlier rate says nothing.
    memory: Duration,
}

const SECOND: Duration = Duration::from_secs(1);

impl Meter {
    /// `asked` is what was asked for in the last `horizon`.
    pub(super) fn new(horizon: Duration, asked: Demanded, now: Instant) -> Self {
        let rate = asked.scaled(SECOND, horizon);
        let (shortest_span, memory) = (horizon / 2, horizon.saturating_mul(5) / 2);
        Self { rate, fresh: Demanded::default(), since: now, shortest_span, memory }
    }

    #[inline]
    pub(super) fn add(&mut self, units: u64) {
        self.fresh.units = self.fresh.units.saturating_add(units);
        self.fresh.checks += 1;
    }

    /// What to expect in `time`.
    pub(super) fn expected(&mut self, time: Duration, now: Instant) -> Demanded {
        let elapsed = now.saturating_duration_since(self.since);
        let fresh = self.fresh.scaled(SECOND, elapsed.max(self.shortest_span));
        let rate = match elapsed {
            // Too short to say that the demand has fallen.
            _ if elapsed < self.shortest_span => self.rate.max(fresh),
            _ if elapsed < self.memory => self.rate.midpoint(fresh).max(fresh),
            _ => fresh,
        };
        if elapsed >= self.shortest_span {
            (self.rate, self.fresh, self.since) = (rate, Demanded::default(), now);
        }
        rate.scaled(time, SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Demanded = Demanded { units: 0, checks: 0 };
    const HORIZON: Duration = Duration::from_millis(8);

    #[test]
    fn what_is_expected_follows_what_was_asked_for() {
        let start = Instant::now();
        let mut meter = Meter::new(HORIZON, NOBODY, start);
        let mut now = start;
        for _ in 0..10 {
            (0..50).for_each(|_| meter.add(10));
            now += Duration::from_millis(5);
            meter.expected(HORIZON, now);
        }
        (0..50).for_each(|_| meter.add(10));
        now += Duration::from_millis(5);
        for _ in 0..2 {
            let expected = meter.expected(HORIZON, now);
            assert_eq!(expected, Demanded { checks: 80, units: 800 }, "100 000 units and 10 000 checks a second");
        }
        now += Duration::from_millis(5);
        assert_eq!(meter.expected(HORIZON, now), Demanded { checks: 40, units: 400 }, "the demand may have ended");
        assert_eq!(meter.expected(HORIZON, now + Duration::from_millis(20)), NOBODY, "the demand has ended");
    }

    #[test]
    fn a_burst_counts_over_the_shortest_span() {
        let start = Instant::now();
        let mut meter = Meter::new(HORIZON, NOBODY, start);
        meter.add(10);
        assert_eq!(meter.expected(HORIZON, start), Demanded { checks: 2, units: 20 });
        meter.add(u64::MAX);
        assert_eq!(meter.expected(HORIZON, start).units, u64::MAX / 125, "as many a second as there are numbers");
    }
}
