//! The open holds of this instance, by the names that Envoy gives them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::limiter::{Hold, SettleFuture};
use tollgate::{Key, Policy};

/// How a descriptor ends its hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Settlement {
    /// All that was held was spent.
    Whole,
    /// This number of the held units was not spent.
    GiveBack(u64),
    /// This number of units was spent. It may be more than was held.
    Spent(u64),
}

/// A descriptor whose units a call has held.
#[derive(Debug)]
pub(crate) struct HeldPart {
    /// `None` for units that were spent when they were held.
    pub(crate) name: Option<Key>,
    /// The charge of the call that has the units. Several descriptors may share one.
    pub(crate) charge: usize,
    /// Who is charged.
    pub(crate) key: Key,
    /// The policy of the hold itself, which may be in shadow.
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
    /// The parts of each name, oldest first. A name may be there twice, because clients choose request ids. Each
    /// settlement ends one of them, so all of them together charge no less than was spent.
    names: HashMap<Key, BTreeSet<(u64, usize)>>,
    expiries: BTreeSet<(Instant, u64)>,
    /// The parts of all groups, and of each count.
    parts: usize,
    parts_of: HashMap<Key, usize>,
    next: u64,
}

impl Holds {
    /// The most descriptors with open holds: some 100 MB. And those of one count, so that it leaves room for others.
    const MOST: usize = 100_000;
    const MOST_OF_COUNT: usize = Self::MOST / 10;
    /// How long the holds of a call wait for the other settlements after the first one. Envoy sends all in one call,
    /// without those for which the response has no amount.
    const GRACE: Duration = Duration::from_secs(1);
    /// The most groups that end under one lock.
    const MOST_AT_ONCE: usize = 1_000;

    /// Whether another hold of this count can be kept.
    pub(crate) fn has_room(&self, key: &Key) -> bool {
        let open = self.lock();
        open.parts < Self::MOST && open.parts_of.get(key).is_none_or(|parts| *parts < Self::MOST_OF_COUNT)
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
                open.names.entry(name.clone()).or_default().insert((id, number));
            }
            *open.parts_of.entry(part.key.clone()).or_default() += 1;
        }
        open.parts += parts.len();
        open.expiries.insert((expires, id));
        let spent = parts.iter().map(|part| part.name.is_none().then_some(part.units)).collect();
        open.groups.insert(id, Group { hold, parts, spent, expires });
    }

    /// Settles the oldest open hold of this name. `None` if there is none; the future ends the holds of the call once
    /// all of its descriptors are settled.
    pub(crate) fn settle(&self, name: &Key, settlement: Settlement) -> Option<Option<SettleFuture>> {
        let now = Instant::now();
        let mut open = self.lock();
        let (id, number) = open.first(name, now)?;
        let Open { groups, names, expiries, .. } = &mut *open;
        remove(names, name, (id, number));
        let group = groups.get_mut(&id)?;
        let held = group.parts[number].units;
        group.spent[number] = Some(match settlement {
            Settlement::Whole => held,
            Settlement::GiveBack(units) => held.saturating_sub(units),
            Settlement::Spent(units) => units,
        });
        if group.spent.iter().any(Option::is_none) {
            let expires = group.expires.min(now + Self::GRACE);
            expiries.remove(&(group.expires, id));
            expiries.insert((expires, id));
            group.expires = expires;
            return Some(None);
        }
        let group = open.take(id)?;
        drop(open);
        Some(Some(group.settle()))
    }

    /// Ends the holds whose time-to-live has passed, and those of calls of which some descriptors were settled. Returns
    /// how many. The number in one go is bounded, so that no call waits long for the lock.
    pub(crate) fn expire(&self) -> usize {
        let now = Instant::now();
        let mut open = self.lock();
        let due = open.expiries.iter().take_while(|(expires, _)| *expires <= now).take(Self::MOST_AT_ONCE);
        let due: Vec<_> = due.map(|(_, id)| *id).collect();
        let expired: Vec<Group> = due.into_iter().filter_map(|id| open.take(id)).collect();
        drop(open);
        let number = expired.len();
        expired.into_iter().for_each(Group::end);
        number
    }

    /// Ends all holds.
    pub(crate) fn clear(&self) {
        let open = std::mem::take(&mut *self.lock());
        open.groups.into_values().for_each(Group::end);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Holds are added and removed as a whole, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The oldest part of this name, of those whose hold has not expired if there are any.
    fn first(&self, name: &Key, now: Instant) -> Option<(u64, usize)> {
        let is_open = |(id, _): &&(u64, usize)| self.groups.get(id).is_some_and(|group| group.expires > now);
        let parts = self.names.get(name)?;
        parts.iter().find(is_open).or_else(|| parts.first()).copied()
    }

    /// Removes a group with all that leads to it.
    fn take(&mut self, id: u64) -> Option<Group> {
        let group = self.groups.remove(&id)?;
        self.expiries.remove(&(group.expires, id));
        self.parts -= group.parts.len();
        for (number, part) in group.parts.iter().enumerate() {
            if let Some(name) = &part.name {
                remove(&mut self.names, name, (id, number));
            }
            if let Some(parts) = self.parts_of.get_mut(&part.key) {
                *parts -= 1;
                if *parts == 0 {
                    self.parts_of.remove(&part.key);
                }
            }
        }
        Some(group)
    }
}

fn remove(names: &mut HashMap<Key, BTreeSet<(u64, usize)>>, name: &Key, part: (u64, usize)) {
    if let Some(parts) = names.get_mut(name) {
        parts.remove(&part);
        if parts.is_empty() {
            names.remove(name);
        }
    }
}

impl Group {
    /// Ends all holds without further settlements. Those that have come are charged; without any, each hold ends as its
    /// policy says.
    fn end(self) {
        let is_settled = |(part, spent): (&HeldPart, &Option<u64>)| part.name.is_some() && spent.is_some();
        if self.parts.iter().zip(&self.spent).any(is_settled) {
            // A future that is dropped is sent in the background.
            drop(self.settle());
        }
    }

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
        let most = sums.values().map(|(_, sum)| *sum).max().unwrap_or_default();
        self.hold.settle_by(|policy| of_policy(policy).unwrap_or(most))
    }
}
