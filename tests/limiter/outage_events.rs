//! What an observer hears of outages: each change once and in order, requests and nothing else.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use tollgate::{
    Check, Key, Limiter, ManualClock, MemoryStore, Policy,
    failure::Breaker,
    observe::{BreakerChange, BreakerState, Decided, Observer, StoreFailure},
    store::{Answer, Store, Verdict},
};

use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

fn policy() -> Policy {
    Policy::per_minute("p", 80).unwrap()
}

/// Two stores side by side, of which one may be away without the other.
#[derive(Clone, Debug)]
struct Halves([UnhealthyStore; 2]);

impl Store for Halves {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0[self.failure_domain_of(&check.charges()[0].key)].check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0[self.failure_domain_of(key)].reset(key, policy)
    }

    fn breaker(&self) -> Option<Breaker> {
        Some(Breaker::default())
    }

    fn failure_domains(&self) -> usize {
        2
    }

    fn failure_domain_of(&self, key: &Key) -> usize {
        usize::from(*key == Key::from("b"))
    }
}

#[derive(Clone, Default)]
struct Heard {
    changes: Arc<Mutex<Vec<BreakerChange>>>,
    decisions: Arc<Mutex<Vec<&'static str>>>,
    failures: Arc<Mutex<usize>>,
    slow: bool,
}

impl Heard {
    /// By their numbers: threads may report them in another order.
    fn states(&self) -> Vec<BreakerState> {
        let mut changes = self.changes.lock().unwrap().clone();
        changes.sort_by_key(|change| change.sequence);
        changes.iter().map(|change| change.to).collect()
    }
}

impl Observer for Heard {
    fn on_breaker_change(&self, change: &BreakerChange) {
        if self.slow && change.to == BreakerState::Open {
            // Long enough for the others to change it again; this is a thread of its own.
            thread::sleep(Duration::from_millis(300));
        }
        self.changes.lock().unwrap().push(*change);
    }

    fn on_decision(&self, decided: &Decided<'_>) {
        self.decisions.lock().unwrap().push(decided.outcome());
    }

    fn on_store_failure(&self, _: &StoreFailure<'_>) {
        *self.failures.lock().unwrap() += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_away_takes_nobody_else_with_it() {
    let halves = Halves([UnhealthyStore::new(Health::Healthy), UnhealthyStore::new(UNAVAILABLE)]);
    let heard = Heard::default();
    let limiter = Limiter::new(halves.clone()).with_observer(heard.clone());
    for _ in 0..20 {
        assert!(limiter.check("a", &policy(), 1).await.is_ok());
        assert!(limiter.check("b", &policy(), 1).await.is_err());
    }
    assert!(limiter.is_breaker_open());
    assert_eq!((halves.0[0].sent(), halves.0[1].sent()), (20, 5));
    halves.0[1].set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(limiter.check("b", &policy(), 1).await.is_ok() && !limiter.is_breaker_open());
    assert_eq!(heard.states(), [BreakerState::Open, BreakerState::Probing, BreakerState::Closed]);
}

#[test]
fn changes_that_a_slow_observer_hears_late_are_in_order_by_their_numbers() {
    let store = UnhealthyStore::new(UNAVAILABLE);
    let heard = Heard { slow: true, ..Heard::default() };
    let limiter = Limiter::new(store.clone()).with_observer(heard.clone());
    let check = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(limiter.check("k", &policy(), 1)).is_ok()
    };
    thread::scope(|scope| {
        scope.spawn(|| assert!((0..5).all(|_| !check())));
        while !limiter.is_breaker_open() {
            thread::yield_now();
        }
        store.set_health(Health::Healthy);
        while !check() {
            thread::yield_now();
        }
    });
    assert_eq!(heard.changes.lock().unwrap().last().map(|change| change.to), Some(BreakerState::Open), "the slow one");
    assert_eq!(heard.states(), [BreakerState::Open, BreakerState::Probing, BreakerState::Closed]);
}

#[tokio::test(start_paused = true)]
async fn neither_debts_nor_caution_are_told_as_requests_or_failures() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(UNAVAILABLE).counting_in(memory());
    let heard = Heard::default();
    let limiter = Limiter::new(store.clone()).with_local(memory(), 8).unwrap().with_observer(heard.clone());
    let decide = || async { limiter.check("k", &policy(), 1).fail_local().await.unwrap().is_allowed() };
    for _ in 0..12 {
        decide().await;
    }
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(600)).await;
    // The breaker closes with a peek, the debts are paid, and those who come now find the share spent.
    limiter.peek("k", &policy()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let failures = *heard.failures.lock().unwrap();
    assert_eq!(failures, 12);
    assert!(!decide().await);
    assert_eq!(*heard.failures.lock().unwrap(), failures);
    let decisions = heard.decisions.lock().unwrap().clone();
    assert_eq!(decisions.len(), 13, "{decisions:?}");
    assert_eq!(limiter.peek("k", &policy()).await.unwrap().available(), Some(70));
}
