//! What modes have in common.

use tollgate::Policy;

use super::mode::{LIMIT, Mode, WINDOW};
use crate::time::{START_US, ms};

/// How far the clocks of processes are off where there is a calendar, in microseconds.
const OFF_US: [i64; 3] = [0, 2_000_000, -2_000_000];

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

    /// Whether keys are banned and reset by hand.
    pub(crate) fn is_by_hand(self) -> bool {
        matches!(self, Self::HandLog | Self::HandLease | Self::HandHolds | Self::HandMemory)
    }
}

/// The time of a process's clock in a world with these modes, in microseconds since the Unix epoch.
pub(crate) fn clock_of(process: usize, modes: &[Mode], now: u64) -> u64 {
    let off_us = if modes.contains(&Mode::Calendar) { OFF_US[process % OFF_US.len()] } else { 0 };
    (START_US + now * 1_000).saturating_add_signed(off_us)
}
