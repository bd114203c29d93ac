//! The purpose of a check: to charge, or to peek.

use crate::failure::FailurePolicy;

/// The purpose of a check. With `fallback`, the local fallback judges if the store gives no verdict.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    /// Charges the cost.
    Check { fallback: bool },
    /// Reports whether a cost of 1 would pass. The store is asked with a cost of 0, which charges nothing.
    Peek { fallback: bool },
}

impl Purpose {
    pub(super) const CHECK: Self = Self::Check { fallback: false };
    pub(super) const PEEK: Self = Self::Peek { fallback: false };

    pub(super) fn with_fallback(self) -> Self {
        match self {
            Self::Check { .. } => Self::Check { fallback: true },
            Self::Peek { .. } => Self::Peek { fallback: true },
        }
    }

    pub(super) fn uses_fallback(self) -> bool {
        matches!(self, Self::Check { fallback: true } | Self::Peek { fallback: true })
    }

    pub(super) fn is_peek(self) -> bool {
        matches!(self, Self::Peek { .. })
    }
}

impl From<FailurePolicy> for Purpose {
    fn from(policy: FailurePolicy) -> Self {
        Self::Check { fallback: policy == FailurePolicy::Local }
    }
}
