//! The end of a hold, before the store has answered it.

use crate::{
    error::{Error, ErrorKind},
    hold::{HoldChange, OpenHold, SettleAnswer},
    observe::HoldEnd,
};

/// The end of a hold, which has to reach the store.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) hold: OpenHold,
    /// The units that are held.
    pub(super) held: u64,
    /// The units to charge.
    pub(super) actual: u64,
    /// How observers see the end if it is no settlement: [`HoldEnd::Dropped`] or [`HoldEnd::TooLong`].
    pub(super) cause: Option<HoldEnd>,
    /// Whether the process does not know if the store has made the hold. The hold may still be on its way to the
    /// store. Observers do not hear of its end.
    pub(super) is_uncertain: bool,
}

impl Ending {
    /// The release of a hold that the store may have made, or may still make.
    pub(super) fn release_of_uncertain(hold: OpenHold, held: u64) -> Self {
        Self { hold, held, actual: 0, cause: None, is_uncertain: true }
    }

    pub(super) fn change(&self) -> HoldChange {
        HoldChange::Settle(self.actual)
    }

    /// Whether this answer is the last one, so that the end is not sent again. The store may receive an uncertain hold
    /// after its end, over another connection. A malformed change would fail again.
    pub(super) fn is_ended_by(&self, answer: &Result<SettleAnswer, Error>) -> bool {
        match answer {
            Ok(settlement) => !self.is_uncertain || *settlement == SettleAnswer::Settled,
            Err(error) => matches!(error.kind(), ErrorKind::BadKey | ErrorKind::InvalidCall),
        }
    }

    /// How the hold ends if the store settles it.
    pub(super) fn end(&self) -> HoldEnd {
        self.cause.unwrap_or(if self.actual == 0 { HoldEnd::Released } else { HoldEnd::Settled })
    }
}
