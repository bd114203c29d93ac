//! Open holds beside a count: what they leave available, and how long a check waits that they deny.
//!
//! A hold is no charge yet, so no algorithm knows it. A check of cost `c` fits beside `h` held units if the algorithm
//! has room for `c + h`. Waits follow from the waits of the algorithm: with `wait(c)` for the time until the charges
//! leave room for `c`,
//!
//! ```text
//! certain(c) = wait(c + h)                             all holds may stay open; never if c + h is above the capacity
//!              or, if unsettled holds are released, the time until the last one ends, whichever is shorter
//! W(c)       = max(wait(c), min(certain(c), typical), 1)
//! ```
//!
//! Holds may end at any time, so a wait for them is at most as long as the policy says a hold typically lasts, and a
//! wait for charges is never shorter than it is without holds. Retry-After is W(cost), `next` is W(available + 1),
//! `reset` is W(capacity). Without open holds all of them are the waits of the algorithm.

use crate::{policy::Policy, verdict::Outcome};

/// The open holds of one key under one policy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Held {
    /// The sum of the units that are held.
    pub(crate) units: u64,
    /// When the last hold ends if nothing changes, in microseconds.
    pub(crate) last_end: u64,
}

impl Held {
    /// What has to fit, so that `cost` fits beside the holds. `None` if it can never fit. A cost of 0 always fits.
    pub(crate) fn asked(self, policy: &Policy, cost: u64) -> Option<u64> {
        self.units.checked_add(cost).filter(|asked| *asked <= policy.capacity())
    }

    /// The outcome of a charge. `plain` is its outcome without holds, `denied` a cost that does not fit with them, and
    /// `wait` the time in microseconds until the charges leave room for a cost of at most the capacity.
    pub(crate) fn outcome(
        self,
        policy: &Policy,
        now: u64,
        plain: Outcome,
        denied: Option<u64>,
        wait: impl Fn(u64) -> u64,
    ) -> Outcome {
        if self.units == 0 {
            return Outcome { retry_after_us: denied.map(wait), ..plain };
        }
        let wait = |cost: u64| self.wait(policy, now, cost, &wait);
        let available = plain.available.saturating_sub(self.units);
        Outcome {
            available,
            retry_after_us: denied.map(&wait),
            // Something is held, so less than the capacity is available.
            next_us: wait(available + 1),
            reset_us: wait(policy.capacity()),
            ..plain
        }
    }

    /// W of the module's page.
    fn wait(self, policy: &Policy, now: u64, cost: u64, wait: impl Fn(u64) -> u64) -> u64 {
        let Some(holds) = policy.holds() else { return wait(cost) };
        let beside_holds = self.asked(policy, cost).map_or(u64::MAX, &wait);
        let is_released = holds.unsettled_released();
        let after_holds = if is_released { self.last_end.saturating_sub(now) } else { u64::MAX };
        beside_holds.min(after_holds).min(holds.typical_us()).max(wait(cost)).max(1)
    }
}
