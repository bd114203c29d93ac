//! Units of checks that were sent to a store whose counts may be behind: they take room of the share until the store
//! has answered, so that checks at the same time do not fill the same room.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;

use crate::{check::Charge, runtime::random::FastState};

/// The reserved units of all counts, by the hashes of their keys and policies. Two counts of one hash share their room,
/// so one of them may be denied too early.
#[derive(Default)]
pub(super) struct Reserved {
    units: Mutex<HashMap<u64, u64, FastState>>,
    /// The number of counts, so that a process without reservations takes no lock.
    number: AtomicUsize,
    hasher: FastState,
}

/// Room of the share, until it is dropped.
pub(crate) struct Reservation {
    reserved: Arc<Reserved>,
    charges: SmallVec<[(u64, u64); 1]>,
}

impl Reserved {
    /// Reserves the costs of all charges, if each fits beside what is reserved. `fits` is asked with a charge and the
    /// units that its count needs in all.
    pub(super) fn reserve<'a>(
        self: &Arc<Self>,
        charges: impl Iterator<Item = &'a Charge> + Clone,
        fits: impl Fn(&Charge, u64) -> bool,
    ) -> Option<Reservation> {
        let mut units = self.lock();
        let needs = |charge: &Charge| units.get(&self.hash(charge)).copied().unwrap_or(0).saturating_add(charge.cost);
        if !charges.clone().all(|charge| fits(charge, needs(charge))) {
            return None;
        }
        let charges: SmallVec<[(u64, u64); 1]> =
            charges.filter(|charge| charge.cost > 0).map(|charge| (self.hash(charge), charge.cost)).collect();
        for (hash, cost) in &charges {
            let sum = units.entry(*hash).or_default();
            *sum = sum.saturating_add(*cost);
        }
        self.number.store(units.len(), Ordering::Release);
        Some(Reservation { reserved: Arc::clone(self), charges })
    }

    /// The units that are reserved of the count of a charge.
    pub(super) fn of(&self, charge: &Charge) -> u64 {
        if self.number.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.lock().get(&self.hash(charge)).copied().unwrap_or(0)
    }

    fn hash(&self, charge: &Charge) -> u64 {
        self.hasher.hash_one(&charge.key) ^ charge.policy.name_hash().rotate_left(32)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u64, FastState>> {
        // A panic under the lock leaves some units reserved, which only makes the share smaller.
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut units = self.reserved.lock();
        for (hash, cost) in &self.charges {
            if let Some(sum) = units.get_mut(hash) {
                *sum = sum.saturating_sub(*cost);
                if *sum == 0 {
                    units.remove(hash);
                }
            }
        }
        self.reserved.number.store(units.len(), Ordering::Release);
    }
}
