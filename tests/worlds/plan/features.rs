//! What modes have in common.

use tollgate::Policy;

use super::mode::{LIMIT, Mode, WINDOW};
use crate::time::ms;

impl Mode {
    pub(crate) fn is_bucket(self) -> bool {
        matches!(self, Self::Bucket | Self::PartsBucket | Self::CreditBucket)
    }

    pub(crate) fn is_window(self) -> bool {
        matches!(self, Self::Window | Self::PartsWindow | Self::CreditWindow)
    }

    pub(crate) fn is_counter(self) -> bool {
        matches!(self, Self::Counter | Self::PartsCounter | Self::CreditCounter)
    }

    /// Whether callers ask for as much as fits.
    pub(crate) fn is_parts(self) -> bool {
        matches!(self, Self::Parts | Self::PartsBucket | Self::PartsWindow | Self::PartsCounter)
    }

    /// Whether units are charged and given back by hand.
    pub(crate) fn is_credited(self) -> bool {
        matches!(self, Self::CreditLog | Self::CreditBucket | Self::CreditWindow | Self::CreditCounter)
    }

    /// The policy that is charged when the first one has no room.
    pub(crate) fn alternative(self) -> Option<Policy> {
        let policy = || Policy::new("alternative", LIMIT, ms(WINDOW)).expect("the policy is valid");
        (self == Self::FirstOf).then(policy)
    }
}
