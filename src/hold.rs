//! Holds as stores see them: what a hold is called, and how it ends.

use std::num::NonZeroU64;

use crate::{key::Key, policy::Policy, runtime::random};

/// The name of a hold: random bits.
pub(crate) type HoldId = NonZeroU64;

/// Makes a new name. No client can foresee it.
pub(crate) fn random_id() -> HoldId {
    NonZeroU64::new(random::number()).unwrap_or(NonZeroU64::MIN)
}

/// A hold that a store has made: the units are held for this key under this policy until the hold ends.
///
/// A store gets it with each [change](crate::store::Store::change_hold).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenHold {
    /// The key whose units are held.
    pub key: Key,
    /// The policy under which the units are held.
    pub policy: Policy,
    /// The name of the hold: random bits. Two holds of one key and policy have different names, also if different
    /// processes make them, so a change that is sent twice never ends another hold.
    pub id: NonZeroU64,
}

impl OpenHold {
    pub(crate) fn new(key: Key, policy: Policy, id: HoldId) -> Self {
        Self { key, policy, id }
    }

    /// The units that a settlement with `units` charges: none under a concurrency limit.
    pub(crate) fn charged(&self, units: u64) -> u64 {
        if self.policy.is_concurrent() { 0 } else { units }
    }
}

/// What happens to an open hold.
///
/// A release is `Settle(0)`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HoldChange {
    /// Ends the hold, and charges this number of units at that instant, whether or not they fit. More than
    /// [`Policy::MAX_LIMIT`] count as that many.
    Settle(u64),
    /// Moves the end of the hold to one time-to-live from now.
    Renew,
}

/// The answer to a change of a hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SettleAnswer {
    /// The hold was open, and the change was made.
    Settled,
    /// The hold had ended before: it was settled or reset, or its time-to-live had passed. The hold was not changed.
    /// If a [`Hold`](crate::limiter::Hold) is settled with more than was charged when it ended, it charges the rest.
    Expired,
    /// There was nothing to change: no store has made the hold. Only a [`Hold`](crate::limiter::Hold) answers this.
    NotHeld,
}
