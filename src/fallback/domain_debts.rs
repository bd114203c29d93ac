//! The debts to one failure domain: which are due, and which are being charged.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{key::Key, policy::Policy, runtime::random::RandomMap};

/// Units to be charged to a key under a policy.
#[derive(Clone)]
pub(crate) struct Debt {
    /// The failure domain that has the key.
    pub(crate) domain: usize,
    pub(crate) key: Key,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    /// How often the debt did not fit.
    pub(crate) kept: u32,
}

#[derive(Default)]
pub(super) struct DomainDebts {
    by_key: RandomMap<Key, SmallVec<[Owed; 1]>>,
    /// The number of debts: of keys and policies.
    entries: usize,
    /// The keys that are due. Some may have no debts any more.
    due: VecDeque<Key>,
    /// The keys that are due later, by time and a number.
    later: BTreeMap<(Instant, u64), Key>,
    last_number: u64,
    /// Earliest time of the next settlement after one has failed.
    not_before: Option<Instant>,
}

/// The debt of one key under one policy.
struct Owed {
    policy: Policy,
    /// The units that are to be charged.
    units: u64,
    /// Whether further units are being charged.
    is_sent: bool,
    /// What denied checks have paid beyond `units` while the debt is being charged: taken off what does not fit.
    paid: u64,
    kept: u32,
    /// When all units were charged, and other instances will have charged theirs. The debt is kept until then.
    over: Option<Instant>,
}

/// The time that other instances are given to charge the store for their debts. An instance whose breaker has opened
/// takes longer, if its probes are further apart; it is then the breaker that is cautious for longer.
const CAUTION: Duration = Duration::from_secs(1);

impl DomainDebts {
    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// Adds a debt; a new one only if there `is_room`. Returns whether it is a new one.
    pub(super) fn add(&mut self, Debt { key, policy, cost, kept, .. }: Debt, is_room: bool) -> bool {
        if let Some(owed) = self.owed_mut(&key, &policy) {
            owed.units = owed.units.saturating_add(cost);
            if owed.over.take().is_some() {
                self.due.push_back(key);
            }
            return false;
        }
        if is_room {
            let owed = Owed { policy, units: cost, is_sent: false, paid: 0, kept, over: None };
            self.by_key.entry(key.clone()).or_default().push(owed);
            self.entries += 1;
            self.due.push_back(key);
        }
        is_room
    }

    /// Whether a debt of this count is left, is being charged, or was charged so recently that other instances may have
    /// debts.
    pub(super) fn has(&self, key: &Key, policy: &Policy) -> bool {
        let is_open =
            |owed: &Owed| owed.policy.counts_with(policy) && owed.over.is_none_or(|over| Instant::now() < over);
        self.by_key.get(key).is_some_and(|debts| debts.iter().any(is_open))
    }

    pub(super) fn forget(&mut self, key: &Key, policy: &Policy) {
        self.retain(key, |owed| !owed.policy.counts_with(policy));
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        let has_due = !self.due.is_empty() || self.later.keys().next().is_some_and(|(due, _)| *due <= now);
        has_due && self.not_before.is_none_or(|instant| instant <= now)
    }

    /// Takes the debts of the next key. Returns whether there was one.
    pub(super) fn take_key(&mut self, domain: usize, now: Instant, taken: &mut Vec<Debt>) -> bool {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            self.due.push_back(entry.remove());
        }
        let Some(key) = self.due.pop_front() else { return false };
        self.retain(&key, |owed| owed.over.is_none_or(|over| now < over));
        for owed in self.by_key.get_mut(&key).into_iter().flatten().filter(|owed| owed.units > 0 && !owed.is_sent) {
            let (policy, cost, kept) = (owed.policy.clone(), std::mem::take(&mut owed.units), owed.kept);
            owed.is_sent = true;
            taken.push(Debt { domain, key: key.clone(), policy, cost, kept });
        }
        true
    }

    /// See [`Debts::settled`](super::debts::Debts::settled).
    pub(super) fn settled(&mut self, debt: &Debt, rest: u64, due: Option<Instant>) {
        let Some(owed) = self.owed_mut(&debt.key, &debt.policy) else { return };
        let rest = rest.saturating_sub(std::mem::take(&mut owed.paid));
        owed.is_sent = false;
        owed.units = owed.units.saturating_add(rest);
        owed.kept = if rest > 0 && due.is_some() { debt.kept.saturating_add(1) } else { 0 };
        let due = if owed.units > 0 {
            due.filter(|_| rest > 0)
        } else {
            owed.over = Some(Instant::now() + CAUTION);
            owed.over
        };
        self.schedule(debt.key.clone(), due);
    }

    /// Takes units off a debt. Of a debt that is being charged, they are taken off what does not fit.
    pub(super) fn pay(&mut self, key: &Key, policy: &Policy, units: u64) {
        let mut debts = self.by_key.get_mut(key).into_iter().flatten();
        let is_open = |owed: &&mut Owed| owed.policy.counts_with(policy) && (owed.units > 0 || owed.is_sent);
        let Some(owed) = debts.find(is_open) else { return };
        let paid = units.min(owed.units);
        owed.units -= paid;
        if owed.is_sent {
            owed.paid = owed.paid.saturating_add(units - paid);
        } else if owed.units == 0 {
            let over = Instant::now() + CAUTION;
            owed.over = Some(over);
            self.schedule(key.clone(), Some(over));
        }
    }

    /// Forgets what is being charged, and tells `note` of which counts that was.
    pub(super) fn forget_sent(&mut self, note: impl Fn(&Key, &Policy)) {
        let sent = |debts: &SmallVec<[Owed; 1]>| debts.iter().any(|owed| owed.is_sent);
        let keys: Vec<Key> = self.by_key.iter().filter(|(_, debts)| sent(debts)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            for owed in self.by_key.get_mut(&key).into_iter().flatten().filter(|owed| owed.is_sent) {
                (owed.is_sent, owed.paid) = (false, 0);
                note(&key, &owed.policy);
            }
            self.retain(&key, |owed| owed.units > 0);
            self.schedule(key, None);
        }
    }

    pub(super) fn pause(&mut self, until: Instant) {
        self.not_before = Some(until);
    }

    fn schedule(&mut self, key: Key, due: Option<Instant>) {
        match due {
            None => self.due.push_back(key),
            Some(due) => {
                self.last_number += 1;
                self.later.insert((due, self.last_number), key);
            }
        }
    }

    fn owed_mut(&mut self, key: &Key, policy: &Policy) -> Option<&mut Owed> {
        self.by_key.get_mut(key)?.iter_mut().find(|owed| owed.policy == *policy)
    }

    fn retain(&mut self, key: &Key, keeps: impl Fn(&Owed) -> bool) {
        let Some(debts) = self.by_key.get_mut(key) else { return };
        let before = debts.len();
        debts.retain(|owed| keeps(owed));
        self.entries -= before - debts.len();
        if debts.is_empty() {
            self.by_key.remove(key);
        }
    }
}

/// How long a debt that did not fit is kept until it is charged again, by the number of times that it did not fit.
///
/// It starts with a tenth of a second, in which a hold of unknown fate is usually released, and doubles, up to a part
/// of the window, because until then hardly any units come back.
pub(super) fn pause_of_kept(policy: &Policy, kept: u32) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(10);
    let longest = (policy.window_length() / 64).clamp(SHORTEST, LONGEST);
    SHORTEST.saturating_mul(1_u32.checked_shl(kept).unwrap_or(u32::MAX)).min(longest)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn policy(name: &str) -> Policy {
        Policy::per_minute(name, 80).unwrap()
    }

    fn debt(key: &str, policy: &Policy, cost: u64) -> Debt {
        Debt { domain: 0, key: Key::new(key), policy: policy.clone(), cost, kept: 0 }
    }

    fn take(debts: &mut DomainDebts) -> Vec<Debt> {
        let mut taken = Vec::new();
        while debts.take_key(0, Instant::now(), &mut taken) {}
        taken
    }

    /// Takes what is due. Returns the costs, and how often each did not fit.
    fn due(debts: &mut DomainDebts) -> Vec<(u64, u32)> {
        take(debts).iter().map(|debt| (debt.cost, debt.kept)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_debt_that_is_charged_or_paid_is_noted_for_a_second_and_then_forgotten() {
        let (key, policy, other) = (Key::new("k"), policy("p"), policy("other"));
        for (is_paid, late) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            let mut debts = DomainDebts::default();
            debts.add(debt("k", &policy, 8), true);
            debts.pay(&key, &other, 5);
            if is_paid {
                debts.pay(&key, &policy, 8);
            } else {
                let taken = take(&mut debts);
                assert_eq!(taken[0].cost, 8, "units of another count have paid for it");
                debts.settled(&taken[0], 0, None);
            }
            advance(CAUTION * 3 / 4).await;
            assert!(debts.has(&key, &policy) && !debts.has(&key, &other));
            advance(CAUTION / 4 * (1 + late)).await;
            assert!(!debts.has(&key, &policy) && debts.is_due(Instant::now()));
            assert!(take(&mut debts).is_empty() && debts.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_did_not_fit_is_due_later_and_what_has_come_meanwhile_at_once() {
        let (policy, mut debts) = (policy("p"), DomainDebts::default());
        ["a", "b", "c"].into_iter().for_each(|key| assert!(debts.add(debt(key, &policy, 8), true)));
        let (taken, later) = (take(&mut debts), Instant::now() + CAUTION);
        debts.add(debt("c", &policy, 2), true);
        taken.iter().zip([5, 5, 0]).for_each(|(debt, rest)| debts.settled(debt, rest, Some(later)));
        assert_eq!(due(&mut debts), [(2, 0)]);
        advance(CAUTION).await;
        assert_eq!(due(&mut debts), [(5, 1), (5, 1)]);
        // The store has failed, so nothing is known about its room.
        debts.settled(&taken[0], 5, None);
        assert_eq!(due(&mut debts), [(5, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_policy_of_a_key_has_a_debt_of_its_own() {
        let (key, p, q) = (Key::new("k"), policy("p"), policy("q"));
        let mut debts = DomainDebts::default();
        debts.add(debt("k", &p, 8), true);
        debts.add(debt("k", &q, 3), true);
        let taken = take(&mut debts);
        debts.settled(&taken[0], 0, None);
        debts.settled(&taken[1], 3, None);
        assert_eq!(due(&mut debts), [(3, 0)], "the other one was charged");
        debts.forget(&key, &p);
        assert!(!debts.has(&key, &p) && debts.has(&key, &q));
        // The settlement is lost twice; the first time, units have come meanwhile.
        debts.add(debt("k", &q, 2), true);
        let noted = std::cell::RefCell::new(Vec::new());
        let note = |_: &Key, policy: &Policy| noted.borrow_mut().push(policy.name().to_owned());
        debts.forget_sent(note);
        assert_eq!(due(&mut debts), [(2, 0)]);
        debts.forget_sent(note);
        assert_eq!(*noted.borrow(), ["q", "q"]);
        assert!(debts.is_empty());
    }

    #[test]
    fn a_debt_that_does_not_fit_waits_for_longer_each_time_up_to_a_part_of_its_window() {
        for (window, kept, millis) in [(1, 9, 100), (60, 0, 100), (60, 3, 800), (60, 40, 937), (86_400, 40, 10_000)] {
            let policy = Policy::new("p", 80, Duration::from_secs(window)).unwrap();
            assert_eq!(pause_of_kept(&policy, kept).as_millis(), millis, "{kept} times in {window} s");
        }
    }

    #[test]
    fn a_payment_while_a_debt_is_being_charged_reduces_what_is_left_of_it() {
        let (key, policy, now) = (Key::new("k"), Policy::per_minute("p", 80).unwrap(), Instant::now());
        // What comes meanwhile is paid first.
        for (meanwhile, rest, left) in [(0, 3, None), (0, 5, None), (0, 7, Some(2)), (2, 4, Some(1))] {
            let (mut debts, mut taken) = (DomainDebts::default(), Vec::new());
            let debt = |cost| Debt { domain: 0, key: key.clone(), policy: policy.clone(), cost, kept: 0 };
            debts.add(debt(8), true);
            assert!(debts.take_key(0, now, &mut taken));
            debts.add(debt(meanwhile), true);
            // Under another policy of the same count.
            debts.pay(&key, &policy.clone().ban_after(9, CAUTION), 5);
            debts.settled(&taken[0], rest, None);
            taken.clear();
            debts.take_key(0, now, &mut taken);
            assert_eq!(taken.first().map(|debt| debt.cost), left, "{meanwhile} {rest}");
        }
    }
}
