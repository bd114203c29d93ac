//! What a store may leave out.

use tollgate::Algorithm;

/// A part of the contract that a store may leave out. [`StoreSuite::without`](super::StoreSuite::without) skips its
/// tests.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Feature {
    /// Bans ([`Policy::ban_after`](tollgate::Policy::ban_after)).
    Bans,
    /// Calendar windows ([`Policy::calendar_window`](tollgate::Policy::calendar_window)).
    Calendars,
    /// Changes by hand ([`Store::change_count`](tollgate::store::Store::change_count)).
    CountChanges,
    /// Rejections that are counted ([`Policy::with_denials_counted`](tollgate::Policy::with_denials_counted)).
    CountRejected,
    /// [`Algorithm::FixedWindow`].
    FixedWindow,
    /// Holds ([`Store::has_holds`](tollgate::store::Store::has_holds)): units that are settled later, and concurrency
    /// limits.
    Holds,
    /// Peeks at costs ([`Store::peek`](tollgate::store::Store::peek)) and charges of as much as fits
    /// ([`Store::charge_up_to`](tollgate::store::Store::charge_up_to)).
    PartialCharges,
    /// A [resolution](tollgate::Policy::with_resolution) of the log other than 1 µs.
    Resolution,
    /// Shadow policies ([`Policy::with_shadow`](tollgate::Policy::with_shadow)).
    Shadow,
    /// [`Algorithm::SlidingWindowCounter`].
    SlidingWindowCounter,
    /// [`Algorithm::SlidingWindowLog`].
    SlidingWindowLog,
    /// [`Algorithm::TokenBucket`].
    TokenBucket,
}

impl Feature {
    /// The algorithms, the default first.
    pub(super) const ALGORITHMS: [(Self, Algorithm); 4] = [
        (Self::SlidingWindowLog, Algorithm::SlidingWindowLog),
        (Self::FixedWindow, Algorithm::FixedWindow),
        (Self::SlidingWindowCounter, Algorithm::SlidingWindowCounter),
        (Self::TokenBucket, Algorithm::TokenBucket),
    ];
}
