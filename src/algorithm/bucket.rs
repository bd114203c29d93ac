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
    /// … and this many parts of `limit`.
    fraction: u64,
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
        if self.arrival < now {
            return Self { arrival: now, fraction: 0 };
        }
        // Another limit may have left its fraction.
        Self { arrival: self.arrival, fraction: self.fraction.min(u64::from(policy.limit()) - 1) }
    }

    fn fits(&self, rolled: &Self, policy: &Policy, now: u64, cost: u32) -> bool {
        cost <= policy.capacity() && rolled.wait(policy, now, cost) == 0
    }

    fn charge(&mut self, rolled: Self, policy: &Policy, now: u64, cost: u32) -> Self {
        let limit = u64::from(policy.limit());
        let (whole, rest) = refill(policy, cost);
        let carry = u64::from(rolled.fraction + rest >= limit);
        let charged =
            Self { arrival: rolled.arrival + whole + carry, fraction: rolled.fraction + rest - carry * limit };
        // A counted rejection empties the bucket, and no more than that.
        let (depth, fraction) = refill(policy, policy.capacity());
        *self = charged.min(Self { arrival: now + depth, fraction });
        self.rolled(policy, now)
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
