//! The open holds of a count, by name and in the order in which they end.

use std::collections::{BTreeMap, HashMap};

use crate::{algorithm::Held, hold::HoldId, runtime::random::FastState};

/// Open holds. Their sum is kept, so that a check reads it without looking at them.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenHolds {
    units: u64,
    /// When each hold ends, in microseconds.
    ends: HashMap<HoldId, u64, FastState>,
    /// The units of each hold, by its end.
    by_end: BTreeMap<(u64, HoldId), u64>,
}

impl OpenHolds {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The sum of the holds, and when the last one ends.
    pub(super) fn held(&self) -> Held {
        let last_end = self.by_end.last_key_value().map_or(0, |(&(end, _), _)| end);
        Held { units: self.units, last_end }
    }

    /// When a hold ends. `None` if there is no such hold.
    pub(super) fn end_of(&self, id: HoldId) -> Option<u64> {
        self.ends.get(&id).copied()
    }

    /// The units of a hold that is open after `now`. `None` if there is no such hold.
    pub(super) fn units_of(&self, id: HoldId, now: u64) -> Option<u64> {
        let end = self.end_of(id).filter(|end| *end > now)?;
        self.by_end.get(&(end, id)).copied()
    }

    /// Adds a hold, in the place of one of the same name.
    pub(super) fn open(&mut self, id: HoldId, units: u64, end: u64) {
        self.close(id);
        self.units += units;
        self.ends.insert(id, end);
        self.by_end.insert((end, id), units);
    }

    /// Ends a hold. Returns its units.
    pub(super) fn close(&mut self, id: HoldId) -> Option<u64> {
        let units = self.by_end.remove(&(self.ends.remove(&id)?, id))?;
        self.units -= units;
        Some(units)
    }

    /// Ends the hold that ends first, if it has ended by `now`. Returns its end and its units.
    pub(super) fn close_first(&mut self, now: u64) -> Option<(u64, u64)> {
        let (&(end, id), _) = self.by_end.first_key_value()?;
        if end > now {
            return None;
        }
        self.close(id).map(|units| (end, units))
    }
}
