//! The steps of a check.

use crate::{
    algorithm::Held,
    hold::{HoldChange, HoldId},
    store::CountChange,
};

/// One step of a check.
///
/// A single server takes a check in one step, which evaluates all charges and commits them if all fit. Across the slots
/// of a cluster a check takes several steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Evaluates the charges. Changes no count.
    Evaluate,
    /// Evaluates the charges, and commits them if all fit.
    Commit,
    /// The same for one part of a check, with a receipt that a refund can name.
    CommitPart(Receipt),
    /// Changes the hold that the only charge names.
    Change(HoldChange),
    /// Changes the count of the only charge by hand.
    ByHand(CountChange),
    /// Charges as much of the only charge as fits.
    UpTo,
    /// Evaluates the charges of a check that another slot has denied, and commits what counts denials.
    Reject,
    /// Refunds a commit. Evaluates nothing.
    Refund(Committed),
    /// Asks one key of the only charge alone, because the slot moves between two masters.
    Alone(Alone),
}

/// One key of a charge, and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Alone {
    /// The count itself, beside units that are held.
    Count { held: Held, then: Then },
    /// The count of denials: counts one more denial, or only evaluates.
    Denials { commits: bool },
    /// The open holds: changes the hold with this name. Its units are those of the charge.
    Holds { usage: AloneHold, id: Option<HoldId> },
}

/// What is done with a count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Then {
    /// Evaluates the charge.
    Evaluate,
    /// Commits the charge if it fits.
    Commit,
    /// Commits the charge if it counts denials, because the check is denied.
    Reject,
}

/// What is done with open holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AloneHold {
    /// Adds up what is held.
    Look,
    /// Holds units, whether or not they fit.
    Hold,
    /// Ends a hold, and charges nothing.
    Release,
    /// Moves the end of a hold.
    Renew,
}

/// The receipt of a commit: a key of its own in the slot of the commit. `lua/refund.lua` describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Receipt {
    /// A random number for each check.
    pub(crate) check: u64,
    /// The number of the part of the check.
    pub(crate) part: u8,
}

/// How a refund names its commit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Committed {
    /// By its receipt. Such a refund may be sent again, and before it is known whether the commit was made.
    Receipt(Receipt),
    /// By its time in microseconds, by the server's clock. Such a refund is sent once.
    At(u64),
}

impl Step {
    /// Whether the step evaluates the charges.
    pub(crate) fn is_check(self) -> bool {
        !matches!(self, Self::Change(_) | Self::ByHand(_) | Self::Refund(_))
    }

    /// Whether the step is for one key of a slot that moves.
    pub(super) fn is_alone(self) -> bool {
        matches!(self, Self::Alone(_))
    }

    /// Whether the step may charge units.
    pub(crate) fn may_charge(self) -> bool {
        matches!(
            self,
            Self::Commit
                | Self::CommitPart(_)
                | Self::Change(_)
                | Self::ByHand(_)
                | Self::UpTo
                | Self::Alone(Alone::Count { then: Then::Commit, .. } | Alone::Holds { usage: AloneHold::Hold, .. })
        )
    }

    /// The receipt that the step names.
    pub(crate) fn receipt(self) -> Option<Receipt> {
        match self {
            Self::CommitPart(receipt) | Self::Refund(Committed::Receipt(receipt)) => Some(receipt),
            _ => None,
        }
    }
}
