//! The demand on one key: units a second.

use std::time::Duration;

use tokio::time::Instant;

/// Measures the units that are asked for.
#[derive(Debug)]
pub(super) struct Meter {
    /// Units a second, up to `since`.
    rate: u64,
    /// The units since then.
    units: u64,
    since: Instant,
}

/// The shortest time over which a rate is measured.
const SPAN: Duration = Duration::from_millis(2);
/// The time after which an earlier rate says nothing.
const MEMORY: Duration = Duration::from_millis(20);

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self { rate: 0, units: 0, since: now }
    }

    pub(super) fn add(&mut self, units: u32) {
        self.units += u64::from(units);
    }

    /// The units to expect in `time`.
    pub(super) fn expected(&mut self, time: Duration, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.since);
        let fresh = per_second(self.units, elapsed.max(SPAN));
        let rate = if elapsed < MEMORY { u64::midpoint(self.rate, fresh).max(fresh) } else { fresh };
        if elapsed >= SPAN {
            (self.rate, self.units, self.since) = (rate, 0, now);
        }
        let expected = u128::from(rate) * time.as_micros() / 1_000_000;
        u32::try_from(expected).unwrap_or(u32::MAX)
    }
}

fn per_second(units: u64, time: Duration) -> u64 {
    let rate = u128::from(units) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        meter.add(u32::MAX);
        assert_eq!(meter.expected(HORIZON, start), u32::MAX);
    }
}
