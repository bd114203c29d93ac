//! Evaluates and commits one count of a check.

use crate::hold::{HoldChange, HoldId, SettleAnswer};
use crate::store::memory::{hold_counts::Count, shard::Shard, table::Place};
use crate::{algorithm::Admission, key::Key, policy::Policy, store::ban::PolicyCost, verdict::Outcome};

/// One count of a check, and the result of its evaluation.
pub(super) struct Counted<'a> {
    pub(super) key: &'a Key,
    pub(super) charged: PolicyCost<'a>,
    /// The name of the hold if the cost is held.
    pub(super) hold: Option<HoldId>,
    pub(super) place: Place,
    pub(super) room: Room,
    /// The index of the count in its shard. `None` if the shard has no such count.
    pub(super) index: Option<usize>,
    pub(super) fits: bool,
    /// Whether the key is banned by hand under the policy.
    pub(super) is_banned: bool,
    /// Whether the next charge of the check is an alternative to that of this count.
    pub(super) has_alternative: bool,
    /// Whether an alternative to the charge of this count is charged.
    pub(super) is_left_out: bool,
}

/// Where a count of a check is kept.
pub(super) enum Room {
    /// In its own place: the count exists, or a live count is dropped for it.
    Own,
    /// In its own place, which is free. The count starts with what the key may have spent in a shared bucket.
    Free { start: Option<Box<Count>> },
    /// In the policy's shared bucket. Earlier charges of the same check spend `ahead` units of it.
    Shared { ahead: u64 },
    /// Nowhere: the store stays full for `wait_us` microseconds or longer. `None`: it is too small for the check.
    Nowhere { wait_us: Option<u64> },
}

impl Counted<'_> {
    /// Whether the count is charged if the check is admitted.
    pub(super) fn is_charge(&self) -> bool {
        self.charged.cost > 0 && !self.charged.policy.is_ban()
    }

    /// Whether the count has a place in its key's shard.
    pub(super) fn has_own_place(&self) -> bool {
        matches!(self.room, Room::Own | Room::Free { .. })
    }

    /// The state of a count that is not in the table.
    fn start(&self) -> Count {
        match &self.room {
            Room::Free { start: Some(start) } => Count::clone(start),
            _ => Count::new(self.charged.policy),
        }
    }
}

impl Shard {
    /// Evaluates: sets whether the cost fits. Ends holds whose time has passed, unless the key is banned, and changes
    /// nothing otherwise.
    pub(super) fn evaluate(&mut self, counted: &mut Counted<'_>, now: u64) {
        let PolicyCost { policy, cost, is_denied_by_ban } = counted.charged;
        counted.index = self.find(counted.key, policy, counted.place.hash);
        let ahead = match counted.room {
            // A count of denials without a place does not ban.
            Room::Nowhere { .. } => {
                counted.fits = cost == 0 || policy.is_ban();
                return;
            }
            Room::Shared { ahead } if cost > 0 => ahead,
            _ => 0,
        };
        let cost = cost.saturating_add(ahead);
        let Some(index) = counted.index else {
            counted.fits = counted.start().evaluate(policy, now, cost);
            return;
        };
        let count = self.entries.state_mut(index);
        counted.is_banned = count.is_banned(policy, now);
        counted.fits = match counted.is_banned {
            true => !is_denied_by_ban,
            false => count.evaluate(policy, now, cost),
        };
    }

    /// The largest cost that fits in a count that is not evaluated yet. Ends holds whose time has passed.
    pub(super) fn room_of(&mut self, counted: &Counted<'_>, now: u64) -> u64 {
        let (key, policy) = (counted.key, counted.charged.policy);
        match (&counted.room, self.find(key, policy, counted.place.hash)) {
            (Room::Nowhere { .. }, _) => 0,
            (_, Some(index)) => self.entries.state_mut(index).room(policy, now),
            (_, None) => counted.start().room(policy, now),
        }
    }

    /// Commits: charges the cost if the check is admitted or rejections count. Returns the outcome.
    pub(super) fn commit(&mut self, counted: &Counted<'_>, now: u64, admission: Admission) -> Outcome {
        let &Counted { key, charged: PolicyCost { policy, cost, .. }, hold, ref place, ref room, index, fits, .. } =
            counted;
        let index = match room {
            Room::Nowhere { wait_us } if !policy.is_ban() => return without_place(policy, cost, fits, *wait_us),
            // An earlier charge of the same check may have added the count.
            Room::Shared { .. } => self.find(key, policy, place.hash),
            _ => index,
        };
        if let Some(index) = index {
            return self.entries.state_mut(index).commit(policy, now, cost, hold, fits, admission);
        }
        let mut state = counted.start();
        let outcome = state.commit(policy, now, cost, hold, fits, admission);
        // A count that is not charged needs no place, even if it starts with the units of a shared bucket.
        let is_charged =
            admission == Admission::Admitted || (admission == Admission::Rejected && policy.denials_counted());
        if is_charged && cost > 0 {
            self.keep(key, policy, place.hash, state, now);
        }
        outcome
    }

    /// Commits to a count of denials: charges one unit for a denial, and the whole limit for the last denial before a
    /// ban.
    pub(super) fn commit_denial(&mut self, counted: &Counted<'_>, now: u64, denied: bool) -> Outcome {
        let &Counted { key, charged: PolicyCost { policy, cost, .. }, ref place, fits, .. } = counted;
        let is_counted = denied && fits && cost > 0;
        let outcome = self.commit(counted, now, Admission::of(is_counted));
        match self.find(key, policy, place.hash) {
            // The ban starts with this denial.
            Some(index) if is_counted && outcome.available == 0 => {
                let count = self.entries.state_mut(index);
                match policy.ban_growth() {
                    Some(growth) => count.begin_ban(policy, now, growth, outcome),
                    None => count.commit(policy, now, policy.limit(), None, false, Admission::Admitted),
                }
            }
            _ => outcome,
        }
    }

    /// Whether a change of a hold is a settlement that counts as a denial.
    pub(super) fn denies_settlement(
        &mut self,
        key: &Key,
        policy: &Policy,
        hash: u64,
        now: u64,
        id: HoldId,
        change: HoldChange,
    ) -> bool {
        let (Some(index), HoldChange::Settle(actual)) = (self.find(key, policy, hash), change) else { return false };
        self.entries.state_mut(index).denies_settlement(policy, now, id, actual)
    }

    /// Changes a hold of a count. The answer is `Expired` if the shard has no such count.
    pub(super) fn change_hold(
        &mut self,
        key: &Key,
        policy: &Policy,
        hash: u64,
        now: u64,
        id: HoldId,
        change: HoldChange,
    ) -> SettleAnswer {
        let found = self.find(key, policy, hash);
        found.map_or(SettleAnswer::Expired, |index| self.entries.state_mut(index).change(policy, now, id, change))
    }

    /// When a count becomes idle, in microseconds; 0 if the shard has no such count.
    pub(super) fn idle_at_of(&self, key: &Key, policy: &Policy, hash: u64) -> u64 {
        self.find(key, policy, hash).map_or(0, |index| self.entries.state(index).idle_at(policy))
    }
}

/// The outcome of a charge whose key gets no place for `wait_us`, or never.
fn without_place(policy: &Policy, cost: u64, fits: bool, wait_us: Option<u64>) -> Outcome {
    Outcome {
        fits,
        available: 0,
        retry_after_us: wait_us.filter(|_| !fits && cost <= policy.capacity()),
        next_us: wait_us.unwrap_or(0),
        reset_us: wait_us.unwrap_or(0),
        ban_us: 0,
    }
}
