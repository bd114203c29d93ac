//! The token bucket as GCRA (ITU-T I.371, virtual scheduling): one number, the theoretical arrival time.
//!
//! A unit costs `window / limit` microseconds, which need not be whole, so the arrival time keeps a fraction in
//! `1 / limit` microseconds and no rate is ever rounded.

use super::{Count, Report, muldiv};
use crate::policy::Policy;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    full: Arrival,
    /// How many parts a microsecond has: the limit that charged last.
    parts: u64,
}

/// When the bucket is full again.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Arrival {
    /// In whole microseconds …
    at: u64,
    /// … and this many parts of `limit`.
    fraction: u64,
}

impl Arrival {
    fn new(at: u64, fraction: u64, limit: u64) -> Self {
        let carry = u64::from(fraction >= limit);
        Self { at: at + carry, fraction: fraction - carry * limit }
    }

    fn wait(self, policy: &Policy, now: u64, cost: u32) -> u64 {
        let (ahead, fraction) = refill(policy, policy.capacity() - cost);
        (self.at + u64::from(self.fraction > fraction)).saturating_sub(now + ahead)
    }
}

/// The time that `units` take to refill.
fn refill(policy: &Policy, units: u32) -> (u64, u64) {
    muldiv(units.into(), policy.window_us(), policy.limit().into())
}

impl Count for Bucket {
    /// By the policy's own limit.
    type Rolled = Arrival;

    fn rolled(&self, policy: &Policy, now: u64) -> Arrival {
        let limit = u64::from(policy.limit());
        if self.full.at < now {
            return Arrival { at: now, fraction: 0 };
        }
        if self.parts == limit || self.full.fraction == 0 {
            return self.full;
        }
        // Rounded up: another limit never makes the arrival time earlier.
        Arrival::new(self.full.at, (self.full.fraction * limit).div_ceil(self.parts), limit)
    }

    fn fits(&self, rolled: &Arrival, policy: &Policy, now: u64, cost: u32) -> bool {
        cost <= policy.capacity() && rolled.wait(policy, now, cost) == 0
    }

    fn charge(&mut self, rolled: Arrival, policy: &Policy, now: u64, cost: u32) -> Arrival {
        let limit = u64::from(policy.limit());
        let (whole, rest) = refill(policy, cost);
        let mut full = Arrival::new(rolled.at + whole, rolled.fraction + rest, limit);
        if policy.count_rejected() {
            // A rejection empties the bucket, and no more than that. A larger bucket, of another burst or limit, may have
            // gone beyond: what it has admitted stays charged.
            let (depth, fraction) = refill(policy, policy.capacity());
            full = full.min(rolled.max(Arrival { at: now + depth, fraction }));
        }
        *self = Self { full, parts: limit };
        full
    }

    fn report(&self, rolled: &Arrival, policy: &Policy, now: u64, refused: Option<u32>) -> Report {
        let (whole, rest) = muldiv(policy.limit().into(), rolled.at - now, policy.window_us());
        let taken = whole.saturating_add((rest + rolled.fraction).div_ceil(policy.window_us()));
        let available = policy.capacity().saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
        Report::of(policy, available, refused, |cost| rolled.wait(policy, now, cost))
    }

    fn idle_at(&self, _: &Policy) -> u64 {
        self.full.at + 1
    }
}
