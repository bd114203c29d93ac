//! The event of a hold that has ended.

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
/// use tollgate::observe::{Event, Observer};
///
/// /// Counts holds that were dropped without a settlement: the code has forgotten to settle them.
/// #[derive(Default)]
/// struct Forgotten(AtomicU64);
///
/// impl Observer for Forgotten {
///     fn on_event(&self, event: &Event<'_>) {
///         if let Event::HoldEnd(hold) = event
///             && hold.end() == "dropped"
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
    /// is not settled. If the [end](Self::end) is `expired`, only what is above the charge at the end is charged. If it
    /// is `unanswered`, nothing is.
    pub actual: u32,
    pub(crate) end: HoldEnd,
    pub(crate) key: ObservedKey<'a>,
}

impl HoldEndEvent<'_> {
    /// How the hold has ended, in one word:
    ///
    /// | word | the hold |
    /// | --- | --- |
    /// | `dropped` | its handle was dropped without a settlement, and the units were charged or given back as the policy says |
    /// | `expired` | the store had ended it before: its time-to-live had passed, or it was reset |
    /// | `released` | was settled with 0 units |
    /// | `settled` | was settled |
    /// | `too_long` | had reached its [longest age](crate::policy::Holds::with_longest), and was settled while its request went on |
    /// | `unanswered` | got no answer of a store within its time-to-live, or too many changes waited for one; the store ends it by itself, unless a change has reached it |
    pub fn end(&self) -> &'static str {
        self.end.as_str()
    }

    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key.0)
    }
}

/// How a hold has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HoldEnd {
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
    /// The end in one word.
    pub(crate) fn as_str(self) -> &'static str {
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
