//! The token bucket as GCRA (ITU-T I.371, virtual scheduling): one number, the theoretical arrival time.
//!
//! A unit costs `window / limit` microseconds, which need not be whole, so the arrival time keeps a fraction in
//! `1 / limit` microseconds and no rate is ever rounded.

use crate::algorithm::{Counter, muldiv};
use crate::{policy::Policy, verdict::Outcome};

/// The theoretical arrival time of one bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TokenBucket {
    /// When the bucket is full again.
    full: Arrival,
    /// The number of parts into which `full.fraction` divides a microsecond: the limit under which the bucket was
    /// charged last.
    parts: u64,
}

/// A theoretical arrival time.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Arrival {
    /// Whole microseconds.
    at: u64,
    /// The rest, in parts of a microsecond that has `limit` parts.
    fraction: u64,
}

#[cfg(feature = "redis")]
impl TokenBucket {
    /// A bucket that is full again `fraction` of a microsecond after `at`.
    pub(super) fn full_at(at: u64, policy: &Policy, fraction: u64) -> Self {
        Self { full: Arrival { at, fraction }, parts: policy.limit() }
    }

    /// The state of a bucket that is not full yet, or just now.
    pub(super) fn full(self) -> Arrival {
        self.full
    }
}

/// The farthest that a settlement moves the arrival time ahead of the clock: 142 years. Sums of times stay exact in
/// Lua's doubles.
const MAX_AHEAD_US: u64 = 1 << 52;

impl Arrival {
    fn new(at: u64, fraction: u64, limit: u64) -> Self {
        let carry = u64::from(fraction >= limit);
        Self { at: at + carry, fraction: fraction - carry * limit }
    }

    /// The units that are missing in the bucket at `now`, rounded up.
    #[inline(always)]
    fn taken(self, policy: &Policy, now: u64) -> u64 {
        let (whole, rest) = muldiv(policy.limit(), self.at - now, policy.window_us());
        whole.saturating_add(div_ceil(rest + self.fraction, policy.window_us()))
    }

    /// Microseconds until `cost` fits.
    #[inline(always)]
    fn wait(self, policy: &Policy, now: u64, cost: u64) -> u64 {
        let (ahead, fraction) = refill(policy, policy.capacity() - cost);
        (self.at + u64::from(self.fraction > fraction)).saturating_sub(now + ahead)
    }
}

/// The time in which `units`, at most the capacity, refill: whole microseconds, and parts of a further one.
fn refill(policy: &Policy, units: u64) -> (u64, u64) {
    let (whole, parts) = policy.unit_time();
    // Most rates have a whole number of microseconds for each unit. They need no division.
    let (more, rest) = if parts == 0 { (0, 0) } else { muldiv(units, parts, policy.limit()) };
    (units * whole + more, rest)
}

/// `a / b`, rounded up. Usually at most 1, which needs no division.
fn div_ceil(a: u64, b: u64) -> u64 {
    if a <= b { u64::from(a > 0) } else { a.div_ceil(b) }
}

impl Counter for TokenBucket {
    /// The arrival time, with a fraction in parts of the policy's own limit.
    type Advanced = Arrival;

    #[inline(always)]
    fn advance_to(&self, policy: &Policy, now: u64) -> Arrival {
        let limit = policy.limit();
        if self.full.at < now {
            return Arrival { at: now, fraction: 0 };
        }
        if self.parts == limit || self.full.fraction == 0 {
            return self.full;
        }
        // Rounded up: another limit never makes the arrival time earlier.
        let (fraction, rest) = muldiv(self.full.fraction, limit, self.parts);
        Arrival::new(self.full.at, fraction + u64::from(rest > 0), limit)
    }

    #[inline(always)]
    fn fits(&self, advanced: &Arrival, policy: &Policy, now: u64, cost: u64) -> bool {
        cost <= policy.capacity() && advanced.wait(policy, now, cost) == 0
    }

    #[inline(always)]
    fn charge(&mut self, advanced: Arrival, policy: &Policy, now: u64, cost: u64) -> Arrival {
        let limit = policy.limit();
        let (whole, rest) = refill(policy, cost);
        let mut full = Arrival::new(advanced.at + whole, advanced.fraction + rest, limit);
        if policy.denials_counted() {
            // A rejection empties the bucket but creates no debt. A policy with a larger burst or limit may have moved
            // the arrival time further ahead; its charges stay.
            let (depth, fraction) = refill(policy, policy.capacity());
            full = full.min(advanced.max(Arrival { at: now + depth, fraction }));
        }
        *self = Self { full, parts: limit };
        full
    }

    #[inline(always)]
    fn report(&self, advanced: &Arrival, policy: &Policy, now: u64, fits: bool, denied: Option<u64>) -> Outcome {
        let taken = advanced.taken(policy, now);
        let available = policy.capacity().saturating_sub(taken);
        let is_spent = taken > 0;
        Outcome {
            fits,
            available,
            retry_after_us: denied.map(|cost| advanced.wait(policy, now, cost)),
            next_us: if is_spent { advanced.wait(policy, now, available + 1) } else { 0 },
            // The bucket is full at the arrival time.
            reset_us: advanced.at + u64::from(advanced.fraction > 0) - now,
            ban_us: 0,
        }
    }

    #[inline(always)]
    fn wait(&self, advanced: &Arrival, policy: &Policy, now: u64, cost: u64) -> u64 {
        advanced.wait(policy, now, cost)
    }

    /// The arrival time is at most [`MAX_AHEAD_US`] ahead of the clock, so that no number of units overflows it.
    fn settle(&mut self, advanced: Arrival, policy: &Policy, now: u64, units: u64) {
        let limit = policy.limit();
        let (whole, fraction) = muldiv(units, policy.window_us(), limit);
        let latest = Arrival { at: now + MAX_AHEAD_US, fraction: 0 };
        let full = match whole < MAX_AHEAD_US {
            true => Arrival::new(advanced.at + whole, advanced.fraction + fraction, limit).min(latest),
            false => latest,
        };
        // A bucket that is in deeper debt already stays where it is.
        *self = Self { full: full.max(advanced), parts: limit };
    }

    fn credit(&mut self, advanced: Arrival, policy: &Policy, now: u64, units: u64) -> u64 {
        if self.full.at < now {
            return 0;
        }
        let (taken, limit) = (advanced.taken(policy, now), policy.limit());
        let (whole, fraction) = muldiv(units, policy.window_us(), limit);
        let full = match advanced.at.checked_sub(whole.saturating_add(u64::from(fraction > advanced.fraction))) {
            Some(at) if at >= now => {
                let borrowed = if fraction > advanced.fraction { limit } else { 0 };
                Arrival { at, fraction: advanced.fraction + borrowed - fraction }
            }
            _ => Arrival { at: now, fraction: 0 },
        };
        *self = Self { full, parts: limit };
        taken.min(units)
    }

    fn span(policy: &Policy, units: u64) -> u64 {
        muldiv(units, policy.window_us(), policy.limit()).0.min(MAX_AHEAD_US) + 1
    }

    fn idle_at(&self, _: &Policy) -> u64 {
        self.full.at + 1
    }

    /// A bucket that was hardly spent is full again within microseconds. Its key is probably charged again within the
    /// time in which an empty bucket gets full.
    fn stale_at(&self, policy: &Policy) -> u64 {
        self.full.at + refill(policy, policy.capacity()).0 + 1
    }
}
