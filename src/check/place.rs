//! The place of a charge among alternatives.

/// Whether a charge is one of several alternatives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Place {
    /// The charge has no alternative.
    #[default]
    Alone,
    /// The next charge of the check is an alternative to this one.
    BeforeNext,
    /// The last of several alternatives.
    Last,
}
