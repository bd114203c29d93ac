//! The token bucket as GCRA (ITU-T I.371, virtual scheduling): one number, the theoretical arrival time.
//!
//! A unit costs `window / limit` microseconds, which need not be whole, so the arrival time keeps a fraction in
//! `1 / limit` microseconds and no rate is ever rounded.

use super::{Count, Report, muldiv};
use crate::policy::Policy;

#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Bucket {
    /// When the bucket is full again, in whole microseconds …
    arrival: u64,
    /// … and this many parts of one.
    fraction: u64,
    /// How many parts a microsecond has: the limit that charged last.
    parts: u64,
}

impl Bucket {
    fn wait(&self, policy: &Policy, now: u64, cost: u32) -> u64 {
        let (ahead, fraction) = refill(policy, policy.capacity() - cost);
        (self.arrival + u64::from(self.fraction > fraction)).saturating_sub(now + ahead)
    }
}

/// The time that `units` take to refill.
fn refill(policy: &Policy, units: u32) -> (u64, u64) {
    muldiv(units.into(), policy.window_us(), policy.limit().into())
}

impl Count for Bucket {
    type Rolled = Self;

    fn rolled(&self, policy: &Policy, now: u64) -> Self {
        let parts = u64::from(policy.limit());
        if self.arrival < now {
            return Self { arrival: now, fraction: 0, parts };
        }
        if self.parts == parts {
            return *self;
        }
        // Rounded up: another limit never makes the arrival time earlier.
        let fraction = if self.fraction == 0 { 0 } else { (self.fraction * parts).div_ceil(self.parts) };
        let carry = u64::from(fraction == parts);
        Self { arrival: self.arrival + carry, fraction: fraction - carry * parts, parts }
    }

    fn fits(&self, rolled: &Self, policy: &Policy, now: u64, cost: u32) -> bool {
        cost <= policy.capacity() && rolled.wait(policy, now, cost) == 0
    }

    fn charge(&mut self, rolled: Self, policy: &Policy, now: u64, cost: u32) -> Self {
        let limit = u64::from(policy.limit());
        let (whole, rest) = refill(policy, cost);
        let carry = u64::from(rolled.fraction + rest >= limit);
        let (arrival, fraction) = (rolled.arrival + whole + carry, rolled.fraction + rest - carry * limit);
        // A counted rejection empties the bucket, and no more than that. A larger bucket, of another burst or limit, may
        // have gone beyond: what it has admitted stays charged.
        let (depth, depth_fraction) = refill(policy, policy.capacity());
        let empty = Self { arrival: now + depth, fraction: depth_fraction, parts: limit };
        *self = Self { arrival, fraction, parts: limit }.min(empty.max(rolled));
        *self
    }

    fn report(&self, rolled: &Self, policy: &Policy, now: u64, refused: Option<u32>) -> Report {
        let (whole, rest) = muldiv(policy.limit().into(), rolled.arrival - now, policy.window_us());
        let taken = whole.saturating_add((rest + rolled.fraction).div_ceil(policy.window_us()));
        let available = policy.capacity().saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
        Report::of(policy, available, refused, |cost| rolled.wait(policy, now, cost))
    }

    fn idle_at(&self, _: &Policy) -> u64 {
        self.arrival + 1
    }
}
