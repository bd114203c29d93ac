//! The parts of a check on a cluster: its charges by slot.

use super::{
    denials::KeyGroups,
    outgoing::{Indices, Outgoing},
};
use crate::{
    check::{Charge, Check},
    verdict::Verdict,
};

/// The charges of one slot.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) slot: u16,
    /// The indices of the charges in the check.
    pub(super) charges: Indices,
    /// Whether a charge is under an enforced policy. The other parts deny nothing, and their slots may fail.
    pub(super) decides: bool,
}

impl Part {
    /// The charges of this part, with their indices in the check.
    pub(super) fn charges_of<'a>(&'a self, check: &'a Check) -> impl Iterator<Item = (usize, &'a Charge)> {
        let indices = self.charges.iter().map(|&index| usize::from(index));
        indices.map(|index| (index, &check.charges()[index]))
    }

    /// Copies the outcomes of this part into the verdict on the check.
    pub(super) fn put(&self, found: &Verdict, verdict: &mut Verdict) {
        for (&index, outcome) in self.charges.iter().zip(&found.outcomes) {
            verdict.outcomes[usize::from(index)] = *outcome;
        }
    }

    /// Copies the outcomes of shadow charges that do not fit into the verdict on the check.
    pub(super) fn put_would_deny(&self, found: &Verdict, check: &Check, verdict: &mut Verdict) {
        for ((index, charge), outcome) in self.charges_of(check).zip(&found.outcomes) {
            if charge.policy.is_shadow() && !outcome.fits {
                verdict.outcomes[index] = *outcome;
            }
        }
    }

    /// The groups of remembered denials that the keys of this part belong to.
    pub(super) fn groups(&self, outgoing: &Outgoing) -> KeyGroups {
        let groups = outgoing.ticket.as_ref().map_or(&[][..], |ticket| &ticket.fingerprint.groups);
        self.charges.iter().filter_map(|&index| groups.get(usize::from(index)).copied()).collect()
    }
}

/// The parts of a check whose charges are in these slots: those that decide, in the order of their slots, then the
/// others in that order.
pub(super) fn parts_of(check: &Check, slots: &[u16]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for ((index, &slot), charge) in (0_u8..).zip(slots).zip(check.charges()) {
        let decides = !charge.policy.is_shadow();
        match parts.iter_mut().find(|part| part.slot == slot) {
            Some(part) => {
                part.charges.push(index);
                part.decides |= decides;
            }
            None => parts.push(Part { slot, charges: Indices::from_slice(&[index]), decides }),
        }
    }
    parts.sort_by_key(|part| (!part.decides, part.slot));
    parts
}

/// A part for each charge of a check, in the order of [`parts_of`].
pub(super) fn one_by_one(check: &Check, slots: &[u16]) -> Vec<Part> {
    let charges = (0_u8..).zip(slots).zip(check.charges());
    let parts = charges.map(|((index, &slot), charge)| {
        let decides = !charge.policy.is_shadow();
        Part { slot, charges: Indices::from_slice(&[index]), decides }
    });
    let mut parts: Vec<Part> = parts.collect();
    parts.sort_by_key(|part| (!part.decides, part.slot));
    parts
}
