//! What a store returns for a check.

use smallvec::SmallVec;

/// A store's judgement of a check.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Whether the check passed and was charged.
    pub allowed: bool,
    /// Where the judgement comes from: [`Source::Store`], or [`Source::DenyCache`] if it was remembered.
    pub source: Source,
    /// The store's time at which it judged, in microseconds since the Unix epoch.
    pub time_us: u64,
    /// One outcome per charge, in the check's order.
    pub outcomes: SmallVec<[Outcome; 1]>,
}

/// A store's report on one charge. All waits are microseconds from [`Verdict::time_us`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// Whether this charge fit.
    pub fits: bool,
    /// The largest cost that would pass now, after this check, whether it passed or not.
    pub available: u32,
    /// Until the same cost fits; `None` if it fits or never can.
    pub retry_after_us: Option<u64>,
    /// Until more becomes available; 0 if nothing is spent.
    pub next_us: u64,
    /// Until all of it is available again.
    pub reset_us: u64,
    /// Until a [ban](crate::Policy::ban_after) ends, before which nothing is available; 0 if there is none.
    pub ban_us: u64,
}

/// Where a [`Decision`](crate::Decision) comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// The store could not answer and the failure policy refuses.
    Closed,
    /// The process remembered a denial of the store that still holds, see
    /// `RedisStoreBuilder::deny_cache`.
    DenyCache,
    /// The store could not answer and the process judged by its share of the limit, see
    /// [`Limiter::with_local`](crate::Limiter::with_local).
    Local,
    /// The store could not answer and the failure policy lets pass.
    Open,
    /// More checks waited for the store than it answers within the deadline; refused whatever the failure policy is.
    /// See [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded).
    Overloaded,
    /// The store judged.
    Store,
}
