//! Holds as stores see them: what a hold is called, and how it ends.

use std::num::NonZeroU64;

use crate::runtime::random;

/// The name of a hold: random bits.
pub(crate) type HoldId = NonZeroU64;

/// Makes a new name. No client can foresee it.
pub(crate) fn random_id() -> HoldId {
    NonZeroU64::new(random::number()).unwrap_or(NonZeroU64::MIN)
}

/// What happens to an open hold.
///
/// A release is `Settle(0)`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HoldChange {
    /// Ends the hold, and charges this number of units at that instant, whether or not they fit. More than
    /// [`Policy::MAX_LIMIT`](crate::Policy::MAX_LIMIT) count as that many.
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
    /// There was nothing to change: no store has made a hold, as for a plain charge, or for a
    /// [`Hold`](crate::limiter::Hold) that a failure policy has let pass.
    NotHeld,
}
