//! The queues of one runtime: one for each slot, and the traffic of each failure domain.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    failure_domain::domain_of,
    outgoing::Request,
    queue::{LANES, Queue},
    traffic::Traffic,
};
use crate::runtime::random::FastState;

/// Queues by slot.
pub(crate) type BySlot = HashMap<u16, Queue, FastState>;

/// The queues and the traffic of one runtime.
#[derive(Debug)]
pub(crate) struct Queues {
    by_slot: Mutex<BySlot>,
    hasher: FastState,
    /// The traffic by failure domain: one domain of a cluster may be silent while others answer.
    traffic: Box<[Arc<Traffic>]>,
}

impl Queues {
    /// Queues of a store with this number of failure domains.
    pub(crate) fn new(domains: usize) -> Self {
        Self { by_slot: Mutex::default(), hasher: FastState::default(), traffic: Traffic::of_domains(domains) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BySlot> {
        // A panic under the lock leaves valid queues.
        self.by_slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn traffic(&self, slot: u16) -> &Arc<Traffic> {
        &self.traffic[domain_of(slot, self.traffic.len())]
    }

    /// The lane of a request, which its first key determines.
    pub(crate) fn lane_of(&self, request: &Request) -> usize {
        let hash = request.charges().next().map_or(0, |(_, key)| self.hasher.hash_one(key));
        usize::try_from(hash % LANES as u64).unwrap_or(0)
    }
}
