//! Units that are charged or given back by hand, in the local fallback.

use std::iter;

use super::Calls;
use crate::{check::Charge, error::Error};

impl Calls {
    /// Owes the store units that are charged by hand, and that it has certainly not charged: `error` is its error.
    /// Returns the units, or `None` without a fallback that can judge.
    pub(crate) fn owe_recorded(&self, charge: &Charge, error: &Error) -> Option<u64> {
        let fallback = self.fallback.as_ref().filter(|fallback| fallback.can_judge())?;
        if error.may_have_charged() {
            // It is not sent again. Until it has left the window, this instance keeps to the whole limit.
            fallback.note_unsure(&charge.key, &charge.policy);
            return None;
        }
        error.kind().follows_failure_policy().then(|| {
            fallback.owe(charge);
            charge.cost
        })
    }

    /// Counts units that were charged by hand.
    pub(crate) fn mirror_recorded(&self, charge: &Charge) {
        if let Some(fallback) = &self.fallback {
            fallback.mirror(iter::once(charge));
        }
    }

    /// Gives back what the store has given back.
    pub(crate) fn mirror_credit(&self, charge: &Charge) {
        if let Some(fallback) = &self.fallback {
            fallback.credit(charge);
        }
    }
}
