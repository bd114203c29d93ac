//! What a queue and a pause belong to.

use std::hash::{Hash, Hasher};

use crate::{calls::Purpose, key::Key, policy::Policy};

/// A key and a policy. Policies that share their counts share a queue.
///
/// Waiters that use the local fallback have a queue of their own, because during an outage the others would stand in
/// their way.
#[derive(Clone, Debug)]
pub(super) struct QueueId {
    pub(super) key: Key,
    pub(super) policy: Policy,
    pub(super) purpose: Purpose,
}

impl QueueId {
    pub(super) fn of(key: &Key, policy: &Policy) -> Self {
        Self { key: key.clone(), policy: policy.clone(), purpose: Purpose::CHECK }
    }

    /// Both queues of a key and a policy.
    pub(super) fn both(key: &Key, policy: &Policy) -> [Self; 2] {
        let id = Self::of(key, policy);
        [Self { purpose: Purpose::CHECK.with_fallback(), ..id.clone() }, id]
    }

    /// The id under which a pause of this queue is kept: a pause holds for both queues.
    pub(super) fn pause(&self) -> Self {
        Self::of(&self.key, &self.policy)
    }
}

impl PartialEq for QueueId {
    fn eq(&self, other: &Self) -> bool {
        self.purpose == other.purpose && self.key == other.key && self.policy.counts_with(&other.policy)
    }
}

impl Eq for QueueId {}

impl Hash for QueueId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
        self.policy.name_hash().hash(state);
    }
}
