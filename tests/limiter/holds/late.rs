//! Settlements that come after the end of their holds.

use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::store::{Answer, Charge, Check, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Error, ErrorKind, Key, Limiter, MemoryStore, Policy, policy::HoldSettings};

use super::remote_store::{Network, RemoteStore};
use super::{TTL, available, limiter, with_holds};
use crate::support::ALGORITHMS;
use crate::support::recorder::{Recorder, assert_warnings};

/// What a hold of 4 units charges in all, if `actual` units are settled after its end.
const CASES: [(bool, u64, u64); 6] =
    [(false, 9, 9), (false, 25, 25), (false, 4, 4), (false, 1, 4), (true, 9, 9), (true, 0, 0)];

fn policy(released: bool) -> Policy {
    with_holds(20, HoldSettings::new().with_unsettled_released(released))
}

#[tokio::test]
async fn what_a_late_settlement_is_above_the_charge_at_the_end_is_charged() {
    for (algorithm, (released, actual, charged)) in ALGORITHMS.into_iter().flat_map(|one| CASES.map(|case| (one, case)))
    {
        let (limiter, clock) = limiter();
        let policy = policy(released).with_algorithm(algorithm);
        let hold = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
        clock.advance(TTL);
        assert_eq!(hold.settle(actual).await.unwrap(), SettleAnswer::Expired);
        let case = format!("{algorithm:?}, {released:?}, {actual}");
        assert_eq!(available(&limiter, &policy).await, 20_u64.saturating_sub(charged), "{case}");
        // 25 units of 20: what is above the limit keeps later requests back for longer.
        assert_eq!(limiter.credit("k", &policy, u64::MAX).await.unwrap(), charged, "{case}");
    }
}

/// The answer to the first attempt is lost, so the second one finds no hold.
#[tokio::test(start_paused = true)]
async fn law_15_a_settlement_that_is_repeated_is_not_late() {
    for released in [false, true] {
        let memory = MemoryStore::new();
        let store = RemoteStore::new(memory.clone());
        let (limiter, policy) = (Limiter::new(store.clone()), policy(released));
        let hold = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
        store.is(Network::LosesAnswers);
        assert!(hold.settle(9).await.is_err());
        store.is(Network::Well);
        tokio::time::sleep(2 * TTL).await;
        assert!(store.received().len() >= 2, "it was repeated");
        assert_eq!(available(&Limiter::new(memory), &policy).await, 11);
    }
}

/// The store has settled the hold, and the runtime that waits for the answer ends.
#[test]
fn law_15_a_settlement_whose_runtime_has_ended_is_not_late() {
    let memory = MemoryStore::new();
    let store = RemoteStore::new(memory.clone());
    let (limiter, policy) = (Limiter::new(store.clone()), policy(false));
    let first = Runtime::new().unwrap();
    first.block_on(async {
        let hold = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
        store.is(Network::Mute);
        drop(tokio::spawn(hold.settle(9)));
        store.receives(1).await;
    });
    drop(first);
    store.is(Network::Well);
    Runtime::new().unwrap().block_on(async {
        assert!(limiter.peek("k", &policy).await.is_ok(), "the limiter is in use again");
        store.receives(2).await;
        assert_eq!(available(&Limiter::new(memory), &policy).await, 11);
    });
}

/// A store without changes by hand, such as one of an application.
#[derive(Debug, Default)]
struct Plain(MemoryStore);

impl Store for Plain {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        self.0.change_hold(hold, change)
    }
}

#[tokio::test]
async fn a_late_charge_that_the_store_refuses_is_reported() {
    let (clock, recorder) = (tollgate::ManualClock::default(), Recorder::default());
    let plain = Plain(MemoryStore::new().with_clock(clock.clone()));
    let (limiter, policy) = (Limiter::new(plain).with_observer(recorder.clone()), policy(false));
    for actual in [9, 3] {
        let hold = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
        clock.advance(TTL);
        hold.settle(actual).await.unwrap();
    }
    assert!(limiter.hold("k", &policy, 1).await.unwrap().is_allowed());
    assert_warnings(&recorder.take().warnings, &[("ends_given_up", "the ends of 1 holds")]);
}

/// It is sent once, so it may be lost with its runtime. The limiter reports that.
#[test]
fn a_late_charge_that_is_lost_with_its_runtime_is_reported_with_the_next_use() {
    let (clock, recorder) = (tollgate::ManualClock::default(), Recorder::default());
    let store = RemoteStore::new(MemoryStore::new().with_clock(clock.clone()));
    let (limiter, policy) = (Limiter::new(store).with_observer(recorder.clone()), policy(false));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime().block_on(async {
        let hold = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
        clock.advance(TTL);
        assert_eq!(hold.settle(9).await.unwrap(), SettleAnswer::Expired);
        // The runtime ends here, with the charge of five units on its way.
    });
    assert_warnings(&recorder.take().warnings, &[]);
    runtime().block_on(async {
        assert_eq!(available(&limiter, &policy).await, 16);
        assert_eq!(available(&limiter, &policy).await, 16);
    });
    assert_warnings(&recorder.take().warnings, &[("ends_given_up", "the ends of 1 holds")]);
}

/// The store has never made a hold of the local fallback, so its whole cost is owed to the store.
#[tokio::test]
async fn a_hold_of_the_fallback_that_has_expired_is_owed_to_the_store() {
    let clock = tollgate::ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let central = memory();
    let store = tollgate::store::FailingStore::over(central.clone());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 2);
    store.fail(ErrorKind::Unavailable);
    let policy = policy(false);
    let hold = limiter.hold("k", &policy, 4).fail_local().await.unwrap().into_result().unwrap();
    clock.advance(TTL);
    assert_eq!(hold.settle(6).await.unwrap(), SettleAnswer::Expired);
    store.recover();
    let checked: Result<_, Error> = limiter.check("other", &policy, 1).await;
    assert!(checked.unwrap().is_allowed());
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(available(&Limiter::new(central), &policy).await, 14);
}
