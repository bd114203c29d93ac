//! Wrong stores: each has one fault, and the suite refuses it by the test that is named for the fault.

mod answers;
mod by_hand;
mod charges;
mod holds;
mod policies;
mod reports;
mod windows;

use std::sync::{Arc, Mutex};
use std::{collections::HashMap, fmt};

use tollgate::store::{Answer, Charge, CountChange, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, ManualClock, MemoryStore, Policy};
use tollgate_testing::{Fixture, TestOutcome, store_suite};

/// A change of a count by hand.
type ChangeCount = fn(&Wrong, &Key, &Policy, CountChange) -> u64;

/// A memory store with a fault.
#[derive(Clone)]
struct Wrong {
    memory: MemoryStore,
    clock: ManualClock,
    /// What the fault needs to remember, by policy name.
    remembered: Arc<Mutex<HashMap<String, Policy>>>,
    check: fn(&Self, &Check) -> Answer<Verdict>,
    reset: fn(&Self, &Key, &Policy) -> Answer<bool>,
    /// `None` without holds.
    change_hold: Option<fn(&Self, &Charge, HoldChange) -> SettleAnswer>,
    /// `None` without changes by hand.
    change_count: Option<ChangeCount>,
}

impl Wrong {
    fn new(clock: ManualClock, check: fn(&Self, &Check) -> Answer<Verdict>) -> Self {
        let memory = MemoryStore::new().with_clock(clock.clone());
        Self {
            memory,
            clock,
            remembered: Arc::default(),
            check,
            reset: |this, key, policy| this.memory.reset(key, policy),
            change_hold: None,
            change_count: None,
        }
    }

    /// The verdict of the memory store.
    fn judge(&self, check: &Check) -> Verdict {
        match self.memory.check(check) {
            Answer::Ready(verdict) => verdict.unwrap(),
            Answer::Pending(_) => unreachable!("a memory store answers without waiting"),
        }
    }

    /// What the memory store does with a change by hand.
    fn by_hand(&self, key: &Key, policy: &Policy, change: CountChange) -> u64 {
        match self.memory.change_count(key, policy, change) {
            Answer::Ready(changed) => changed.unwrap(),
            Answer::Pending(_) => unreachable!("a memory store answers without waiting"),
        }
    }

    /// What the memory store does with a hold.
    fn change(&self, hold: &Charge, change: HoldChange) -> SettleAnswer {
        match self.memory.change_hold(hold, change) {
            Answer::Ready(settlement) => settlement.unwrap(),
            Answer::Pending(_) => unreachable!("a memory store answers without waiting"),
        }
    }
}

impl Store for Wrong {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        (self.check)(self, check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        (self.reset)(self, key, policy)
    }

    fn has_holds(&self) -> bool {
        self.change_hold.is_some()
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        let change_hold = self.change_hold.expect("the store has holds");
        Answer::Ready(Ok(change_hold(self, hold, change)))
    }

    fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Answer<u64> {
        match self.change_count {
            Some(change_count) => Answer::Ready(Ok(change_count(self, key, policy, change))),
            None => Answer::Ready(Err(Error::new(
                ErrorKind::InvalidCall,
                "the store cannot ban a key or change its units by hand",
            ))),
        }
    }
}

impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrong")
    }
}

/// A verdict that is known without waiting.
fn ready(verdict: Verdict) -> Answer<Verdict> {
    Answer::Ready(Ok(verdict))
}

/// The same check with other keys, policies or costs.
fn change(check: &Check, change: impl Fn(&Charge) -> (Key, Policy, u64)) -> Check {
    let mut charges = check.charges().iter().map(change);
    let (key, policy, cost) = charges.next().unwrap();
    charges.fold(Check::new(key, &policy, cost), |check, (key, policy, cost)| check.and(key, &policy, cost))
}

/// A policy of the same name, limit, window and algorithm, with the defaults of that algorithm.
fn plain(policy: &Policy) -> Policy {
    let plain = Policy::new(policy.name(), policy.limit(), policy.window().unwrap()).unwrap();
    plain.with_algorithm(policy.algorithm()).with_denials_counted(policy.denials_counted())
}

/// Asserts that the suite refuses the store by the test with this name, and returns why.
async fn refused_by(name: &'static str, check: fn(&Wrong, &Check) -> Answer<Verdict>) -> String {
    fixture_refused_by(name, move |clock| Fixture::new(Wrong::new(clock.clone(), check), clock)).await
}

/// The same for a store that does not only check wrongly.
async fn fixture_refused_by(
    name: &'static str,
    fixture: impl Fn(ManualClock) -> Fixture + Clone + Send + Sync + 'static,
) -> String {
    let fixture = move || {
        let fixture = fixture.clone();
        async move { fixture(ManualClock::default()) }
    };
    let report = store_suite(fixture).run().await;
    match report.outcome(name) {
        Some(TestOutcome::Failed(why)) => why.clone(),
        outcome => panic!("{name}: {outcome:?}; refused by {:?}", report.failed().collect::<Vec<_>>()),
    }
}
