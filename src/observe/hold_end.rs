//! The event of a hold that has ended.

use std::fmt;

use crate::{
    observe::{Fingerprint, ObservedKey},
    policy::Policy,
};

/// A hold that has ended.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::observe::{Event, HoldEnd, Observer};
///
/// /// Counts holds that were dropped without a settlement: the code has forgotten to settle them.
/// #[derive(Default)]
/// struct Forgotten(AtomicU64);
///
/// impl Observer for Forgotten {
///     fn on_event(&self, event: &Event<'_>) {
///         if let Event::HoldEnd(hold) = event
///             && hold.end == HoldEnd::Dropped
///         {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HoldEndEvent<'a> {
    /// The policy under which the units were held.
    pub policy: &'a Policy,
    /// The units that were held.
    pub held: u32,
    /// The units that its end was to charge: those of the settlement, or those that the policy charges for a hold that
    /// is not settled. If the hold has [expired](HoldEnd::Expired), only what is above the charge at its end is
    /// charged. Not charged if the hold is [unanswered](HoldEnd::Unanswered).
    pub actual: u32,
    /// How the hold has ended.
    pub end: HoldEnd,
    pub(crate) key: ObservedKey<'a>,
}

impl HoldEndEvent<'_> {
    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key.0)
    }
}

/// How a hold has ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum HoldEnd {
    /// The handle was dropped without a settlement, and the units were charged or given back as the policy says.
    Dropped,
    /// The store had ended the hold before: its time-to-live had passed, or it was reset.
    Expired,
    /// It was released: settled with 0 units.
    Released,
    /// It was settled.
    Settled,
    /// It had reached its [longest age](crate::policy::Holds::with_longest), and was settled while its request went on.
    TooLong,
    /// No store has answered within the time-to-live, or too many changes waited for an answer. The store ends the hold
    /// by itself, unless a change has reached it.
    Unanswered,
}

impl HoldEnd {
    /// The end in one word: `dropped`, `expired`, `released`, `settled`, `too_long` or `unanswered`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Expired => "expired",
            Self::Released => "released",
            Self::Settled => "settled",
            Self::TooLong => "too_long",
            Self::Unanswered => "unanswered",
        }
    }
}

impl fmt::Display for HoldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
