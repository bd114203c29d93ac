//! Holds that a store has made, as the charges that have made them.

use std::ops::Deref;

use crate::check::{Charge, Check};
use crate::{hold::HoldId, key::Key, policy::Policy};

/// A hold that a store has made: a charge with the name of a hold.
#[derive(Clone, Debug)]
pub(crate) struct OpenHold {
    charge: Charge,
    id: HoldId,
}

impl OpenHold {
    pub(crate) fn new(key: Key, policy: Policy, id: HoldId) -> Self {
        Self { charge: Charge { hold: Some(id), ..Charge::new(key, policy, 0) }, id }
    }

    /// The hold that a store was asked to change; `None` for a plain charge.
    pub(crate) fn of(charge: &Charge) -> Option<Self> {
        charge.hold.map(|id| Self::new(charge.key.clone(), charge.policy.clone(), id))
    }

    /// A plain charge of `cost` units to the key of the hold, under its policy.
    pub(crate) fn into_charge(self, cost: u64) -> Charge {
        Charge { cost, hold: None, ..self.charge }
    }

    /// The name of the hold.
    pub(crate) fn id(&self) -> HoldId {
        self.id
    }

    /// The units that a settlement with `units` charges: none under a concurrency limit.
    pub(crate) fn charged(&self, units: u64) -> u64 {
        if self.policy.is_concurrent() { 0 } else { units }
    }
}

impl Deref for OpenHold {
    type Target = Charge;

    fn deref(&self) -> &Charge {
        &self.charge
    }
}

impl Check {
    /// The holds of the check, in its order, with the numbers of their entries in a decision and their units.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (usize, OpenHold, u64)> {
        let charges = self.groups().enumerate().flat_map(|(number, group)| group.iter().map(move |one| (number, one)));
        charges.filter_map(|(number, charge)| Some((number, OpenHold::of(charge)?, charge.cost)))
    }

    /// A check that names a hold and charges nothing, to change the hold.
    #[cfg(feature = "redis")]
    pub(crate) fn of_open_hold(hold: OpenHold) -> Self {
        Self::of_distinct([hold.charge])
    }
}
