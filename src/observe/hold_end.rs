//! How holds end.

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
    /// It had reached its [longest age](crate::policy::HoldSettings::with_longest), and was settled while its request
    /// went on.
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
