//! The record of a charge's open holds, which have a key of their own. `lua/holds.lua` has the script's side.

use super::outgoing::{Alone, AloneHold, Step};
use crate::hold::{HoldChange, HoldId};
use crate::policy::{HoldSettings, Policy};
use crate::{check::Charge, store::ban};

/// What the script does with the holds of a charge.
pub(super) mod usage {
    /// Counts the holds as spent, and makes a hold of the charge if it has a name.
    pub(crate) const CHECK: u8 = 0;
    /// Ends a hold and charges units.
    pub(crate) const SETTLE: u8 = 1;
    /// Moves the end of a hold.
    pub(crate) const RENEW: u8 = 2;
    /// Added if the count is not asked.
    pub(crate) const ALONE: u8 = 4;
    /// Added to [`SETTLE`] if the count of denials follows.
    pub(crate) const COUNT_DENIAL: u8 = 8;
}

/// Units whose hold ends unsettled are charged, or released.
const CHARGE: u64 = 0;
const RELEASE: u64 = 1;

/// The holds that a step with a charge concerns. `None` under a policy without holds. The refund of a plain charge and
/// a change of a count concern none either, because the holds do not change.
pub(super) fn holds_of(charge: &Charge, step: Step) -> Option<&HoldSettings> {
    match step {
        Step::ByHand(_) => None,
        Step::Refund(_) if charge.hold.is_none() => None,
        _ => charge.policy.holds(),
    }
}

/// The usage and the fields of the holds: whether an unsettled hold is released, the time-to-live, the name of a hold
/// (zeros for none), and the units to charge.
pub(super) fn record(charge: &Charge, holds: &HoldSettings, step: Step) -> (u8, u64, u64, [u8; 8], u64) {
    let (usage, actual) = match step {
        Step::Change(change @ HoldChange::Settle(actual)) => {
            let counts = if ban::denied_settlement(charge, change).is_some() { usage::COUNT_DENIAL } else { 0 };
            (usage::SETTLE + counts, actual.min(Policy::MAX_LIMIT))
        }
        Step::Change(HoldChange::Renew) => (usage::RENEW, 0),
        Step::Refund(_) => (usage::SETTLE, 0),
        Step::Alone(Alone::Holds { usage, .. }) => match usage {
            AloneHold::Look | AloneHold::Hold => (usage::ALONE + usage::CHECK, 0),
            AloneHold::Release => (usage::ALONE + usage::SETTLE, 0),
            AloneHold::Renew => (usage::ALONE + usage::RENEW, 0),
        },
        _ => (usage::CHECK, 0),
    };
    let unsettled = if holds.unsettled_released() { RELEASE } else { CHARGE };
    let id = if let Step::Alone(Alone::Holds { id, .. }) = step { id } else { charge.hold };
    let id = id.map_or(0, HoldId::get);
    // By the order of these bytes, holds that end at the same time end in the order of their names.
    (usage, unsettled, holds.ttl_us(), id.to_be_bytes(), actual)
}
