//! Holds while the store gives no verdict, judged by the instance's share.

use std::time::Duration;

use tollgate::store::{FailingStore, SettleAnswer, WhenFull};
use tollgate::{
    Error, ErrorKind, Limiter, ManualClock, MemoryStore, Policy, decision::Source, limiter::Hold, policy::HoldSettings,
};

use super::{TTL, with_holds};
use crate::support::recorder::Recorder;

/// Two instances share 20 units a minute.
fn stage() -> (Limiter, FailingStore, MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let central = memory();
    let store = FailingStore::over(central.clone());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 2);
    (limiter, store, central, clock)
}

fn policy() -> Policy {
    with_holds(20, HoldSettings::new())
}

async fn hold(limiter: &Limiter, cost: u64) -> Option<Hold> {
    limiter.hold("k", &policy(), cost).fail_local().await.unwrap().into_result().ok()
}

/// What the central store has left, after the debts of the instance are settled.
async fn left(limiter: &Limiter, central: &MemoryStore) -> u64 {
    // A check that the store answers starts the debits.
    let _ = limiter.check("other", &policy(), 1).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    Limiter::new(central.clone()).peek("k", &policy()).await.unwrap().available().unwrap()
}

#[tokio::test]
async fn holds_are_judged_by_the_share_and_their_settlements_are_owed_to_the_store() {
    let (limiter, store, central, _) = stage();
    let first = hold(&limiter, 8).await.unwrap();
    assert_eq!(first.decision().source(), Source::Local);
    assert!(hold(&limiter, 3).await.is_none(), "the share of 10 has 2 left");
    assert!(hold(&limiter, 2).await.is_some(), "dropped at once, so it is charged");
    assert_eq!(first.settle(5).await.unwrap(), SettleAnswer::Settled);
    assert!(hold(&limiter, 4).await.is_none());
    let last = hold(&limiter, 3).await.unwrap();
    store.recover();
    assert_eq!(left(&limiter, &central).await, 13, "5 settled and 2 dropped");
    assert_eq!(last.release().await.unwrap(), SettleAnswer::Settled);
    assert_eq!(left(&limiter, &central).await, 13);
}

/// A debt of nothing would never be charged, and hold the key to the share for ever.
#[tokio::test]
async fn a_hold_of_the_share_that_is_released_leaves_no_debt() {
    let (limiter, store, ..) = stage();
    assert_eq!(hold(&limiter, 5).await.unwrap().release().await.unwrap(), SettleAnswer::Settled);
    store.recover();
    assert_eq!(hold(&limiter, 15).await.unwrap().decision().source(), Source::Store);
}

/// An outage gives no client a fresh budget: the share counts the open holds of the store too.
#[tokio::test]
async fn holds_of_the_store_are_mirrored() {
    let (limiter, store, central, _) = stage();
    store.recover();
    let [settled, open] = [hold(&limiter, 4).await.unwrap(), hold(&limiter, 3).await.unwrap()];
    settled.settle(2).await.unwrap();
    store.fail(ErrorKind::Unavailable);
    assert!(hold(&limiter, 6).await.is_none(), "2 spent and 3 held of the share of 10");
    let local = hold(&limiter, 5).await.unwrap();
    assert_eq!(local.decision().source(), Source::Local);
    local.release().await.unwrap();
    store.recover();
    assert_eq!(open.settle(0).await.unwrap(), SettleAnswer::Settled);
    store.fail(ErrorKind::Unavailable);
    assert!(hold(&limiter, 8).await.unwrap().release().await.is_ok());
    store.recover();
    assert_eq!(left(&limiter, &central).await, 18);
}

/// The memory was full when the share judged the key, so the key's first hold is in the bucket that new keys share.
#[tokio::test]
async fn law_14_a_hold_of_the_store_is_mirrored_beside_the_holds_that_a_full_memory_has_judged() {
    let clock = ManualClock::default();
    let store = FailingStore::over(MemoryStore::new().with_clock(clock.clone()));
    let memory = MemoryStore::with_capacity(1).unwrap().with_clock(clock.clone()).when_full(WhenFull::ShareOneKey);
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory, 2);
    store.recover();
    let short = Policy::per_second("short", 2).unwrap();
    assert!(limiter.check("kept", &short, 1).await.unwrap().is_allowed());
    store.fail(ErrorKind::Unavailable);
    let local = hold(&limiter, 8).await.unwrap();
    assert_eq!(local.decision().source(), Source::Local);
    // The key with a count is idle, so there is room for another one.
    clock.advance(Duration::from_secs(1));
    store.recover();
    let mirrored = hold(&limiter, 1).await.unwrap();
    assert_eq!(mirrored.decision().source(), Source::Store);
    store.fail(ErrorKind::Unavailable);
    assert!(hold(&limiter, 2).await.is_none(), "9 are held of the share of 10");
    let last = hold(&limiter, 1).await.unwrap();
    drop((local, mirrored, last));
}

#[tokio::test]
async fn a_hold_of_the_store_is_mirrored_in_the_place_of_another_count_of_a_full_memory() {
    let clock = ManualClock::default();
    let store = FailingStore::over(MemoryStore::new().with_clock(clock.clone()));
    let memory = MemoryStore::with_capacity(1).unwrap().with_clock(clock);
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory.clone(), 2).without_notices();
    store.recover();
    assert!(limiter.check("other", &policy(), 1).await.unwrap().is_allowed());
    let _mirrored = hold(&limiter, 4).await.unwrap();
    assert_eq!((memory.keys(), memory.evicted()), (1, 1));
    store.fail(ErrorKind::Unavailable);
    assert!(hold(&limiter, 7).await.is_none(), "4 are held of the share of 10");
}

#[tokio::test]
async fn holds_of_the_share_expire_as_others_do() {
    let (recorder, (limiter, _, _, clock)) = (Recorder::default(), stage());
    let limiter = limiter.with_observer(recorder.clone());
    let late = hold(&limiter, 10).await.unwrap();
    clock.advance(TTL);
    assert!(hold(&limiter, 1).await.is_none(), "charged at its end");
    assert_eq!(late.settle(3).await.unwrap(), SettleAnswer::Expired);
    clock.advance(Duration::from_secs(60));
    let next = hold(&limiter, 10).await.unwrap();
    assert_eq!(next.renew().await.unwrap(), SettleAnswer::Settled);
    assert_eq!(next.settle(4).await.unwrap(), SettleAnswer::Settled);
    let ends: Vec<_> = recorder.take().holds.into_iter().map(|(.., actual, end)| (actual, end)).collect();
    assert_eq!(ends, [(3, "expired"), (4, "settled")]);
}

#[tokio::test]
async fn without_a_fallback_a_hold_that_asks_for_it_is_an_error() {
    let error: Error = Limiter::new(MemoryStore::new()).hold("k", &policy(), 1).fail_local().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCall);
}

/// Each hold ends released in the store, so no settlement reaches the share either.
#[tokio::test]
async fn mirrored_holds_that_have_expired_leave_room_in_the_share() {
    let (limiter, store, _, clock) = stage();
    store.recover();
    let policy = with_holds(20, HoldSettings::new().with_unsettled_released(true));
    for _ in 0..300 {
        let late = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
        clock.advance(TTL);
        assert_eq!(late.settle(0).await.unwrap(), SettleAnswer::Expired);
    }
    store.fail(ErrorKind::Unavailable);
    let held = limiter.hold("k", &policy, 4).fail_local().await.unwrap();
    assert!(held.is_allowed(), "nothing is held any more: {:?}", held.decision());
}

/// A slot of the store, whose end cannot be sent, is free in the share of its instance at once.
#[tokio::test]
async fn law_2_an_end_on_its_way_to_a_store_that_is_away_denies_nothing_in_the_share() {
    let (limiter, store, ..) = stage();
    store.recover();
    let slots = Policy::concurrent("slots", 2).unwrap();
    let slot = async || limiter.hold("k", &slots, 1).fail_local().await.unwrap().into_result().ok();
    let first = slot().await.unwrap();
    assert_eq!(first.decision().source(), Source::Store);
    store.fail(ErrorKind::Unavailable);
    assert!(slot().await.is_none(), "the share of one slot is taken");
    drop(first);
    let second = slot().await.expect("the share has a slot again");
    assert_eq!(second.decision().source(), Source::Local);
    assert!(second.release().await.is_ok());
    let third = slot().await.unwrap();
    assert!(third.settle(0).await.is_ok());
    assert!(slot().await.is_some());
}
