//! The open holds of this instance, by the names that Envoy gives them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tollgate::{
    Key, Policy,
    limiter::{Hold, SettleFuture},
};

/// How a descriptor ends its hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Settlement {
    /// All that was held was spent.
    Whole,
    /// So many of the held units were not spent.
    GiveBack(u64),
    /// So many units were spent, also if more than were held.
    Spent(u64),
}

/// A descriptor whose units a call has held.
#[derive(Debug)]
pub(crate) struct HeldPart {
    /// `None` for units that were spent when they were held.
    pub(crate) name: Option<Key>,
    /// The charge of the call that has the units. Several descriptors may share one.
    pub(crate) charge: usize,
    pub(crate) policy: Policy,
    pub(crate) units: u64,
}

/// The holds of one call, which end together.
#[derive(Debug)]
struct Group {
    hold: Hold,
    parts: Vec<HeldPart>,
    /// What each part has spent, once it is settled.
    spent: Vec<Option<u64>>,
    expires: Instant,
}

/// The open holds.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    groups: HashMap<u64, Group>,
    /// The parts of each name, oldest first. A name may be there twice, for clients choose request ids: each settlement
    /// ends one of them, so all of them together charge no less than was spent.
    names: HashMap<Key, VecDeque<(u64, usize)>>,
    expiries: BTreeMap<(Instant, u64), ()>,
    next: u64,
}

impl Holds {
    /// The most calls with open holds: some 100 MB.
    const MOST: usize = 100_000;

    /// Whether another hold can be kept.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().groups.len() < Self::MOST
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().groups.len()
    }

    /// Keeps the holds of a call for at most `ttl`.
    pub(crate) fn keep(&self, hold: Hold, parts: Vec<HeldPart>, ttl: Duration) {
        let mut open = self.lock();
        let expires = Instant::now() + ttl;
        let id = open.next;
        open.next += 1;
        for (number, part) in parts.iter().enumerate() {
            if let Some(name) = &part.name {
                open.names.entry(name.clone()).or_default().push_back((id, number));
            }
        }
        open.expiries.insert((expires, id), ());
        let spent = parts.iter().map(|part| part.name.is_none().then_some(part.units)).collect();
        open.groups.insert(id, Group { hold, parts, spent, expires });
    }

    /// Settles the oldest open hold of this name. `None` if there is none; the future ends the holds of the call once
    /// all of its descriptors are settled.
    pub(crate) fn settle(&self, name: &Key, settlement: Settlement) -> Option<Option<SettleFuture>> {
        let mut open = self.lock();
        let (id, number) = open.pop(name)?;
        let group = open.groups.get_mut(&id)?;
        let held = group.parts[number].units;
        group.spent[number] = Some(match settlement {
            Settlement::Whole => held,
            Settlement::GiveBack(units) => held.saturating_sub(units),
            Settlement::Spent(units) => units,
        });
        if group.spent.iter().any(Option::is_none) {
            return Some(None);
        }
        let group = open.groups.remove(&id)?;
        open.expiries.remove(&(group.expires, id));
        drop(open);
        Some(Some(group.settle()))
    }

    /// Drops the holds whose time-to-live has passed: the store has ended them. Returns how many.
    pub(crate) fn expire(&self) -> usize {
        let now = Instant::now();
        let mut expired = Vec::new();
        let mut open = self.lock();
        while let Some(entry) = open.expiries.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, id), ()) = entry.remove_entry();
            if let Some(group) = open.groups.remove(&id) {
                open.forget(id, &group);
                expired.push(group);
            }
        }
        drop(open);
        expired.len()
    }

    /// Drops all holds: each ends as its policy says.
    pub(crate) fn clear(&self) {
        let open = std::mem::take(&mut *self.lock());
        drop(open);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Holds are added and removed as a whole, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn pop(&mut self, name: &Key) -> Option<(u64, usize)> {
        let parts = self.names.get_mut(name)?;
        let part = parts.pop_front();
        if parts.is_empty() {
            self.names.remove(name);
        }
        part
    }

    /// Removes the names of a group.
    fn forget(&mut self, id: u64, group: &Group) {
        for name in group.parts.iter().filter_map(|part| part.name.as_ref()) {
            if let Some(parts) = self.names.get_mut(name) {
                parts.retain(|(other, _)| *other != id);
                if parts.is_empty() {
                    self.names.remove(name);
                }
            }
        }
    }
}

impl Group {
    /// Ends all holds. Descriptors that share a charge spend the sum. Counts that share a policy are settled with the
    /// largest of their sums, so that none is charged less than was spent.
    fn settle(self) -> SettleFuture {
        let mut sums: BTreeMap<usize, (&Policy, u64)> = BTreeMap::new();
        for (part, spent) in self.parts.iter().zip(&self.spent) {
            let (_, sum) = sums.entry(part.charge).or_insert((&part.policy, 0));
            *sum = sum.saturating_add(spent.unwrap_or(part.units));
        }
        let of_policy =
            |policy: &Policy| sums.values().filter(|(other, _)| *other == policy).map(|(_, sum)| *sum).max();
        self.hold.settle_by(|policy| of_policy(policy).unwrap_or_default())
    }
}
