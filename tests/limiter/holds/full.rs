//! Holds in a memory store that is full.

use std::{sync::Arc, time::Duration};

use tollgate::store::{SettleAnswer, WhenFull};
use tollgate::{Algorithm, Limiter, ManualClock, MemoryStore, Policy, policy::HoldSettings};

use super::{TTL, available, of, tokens, with_holds};
use crate::support::{ALGORITHMS, recorder::Recorder};

fn store(when_full: WhenFull) -> MemoryStore {
    MemoryStore::with_capacity(1).unwrap().when_full(when_full)
}

#[tokio::test]
async fn a_full_store_that_denies_keeps_open_holds() {
    let limiter = Limiter::new(store(WhenFull::Deny));
    let hold = limiter.hold("k", &tokens(), 4).await.unwrap().into_result().unwrap();
    assert!(!limiter.hold("new", &tokens(), 1).await.unwrap().is_allowed());
    assert!(!limiter.check("new", &tokens(), 1).await.unwrap().is_allowed());
    assert_eq!(available(&limiter, &tokens()).await, 6);
    assert_eq!(hold.release().await.unwrap(), SettleAnswer::Settled);
    assert!(limiter.hold("new", &tokens(), 1).await.unwrap().is_allowed(), "the place is free again");
}

/// The policy of an open hold may be replaced by one that charges unsettled holds.
#[tokio::test]
async fn a_full_store_keeps_expired_holds_that_a_new_policy_charges() {
    let clock = ManualClock::default();
    let limiter = Limiter::new(store(WhenFull::Deny).with_clock(clock.clone()));
    let releasing = with_holds(10, HoldSettings::new().with_unsettled_released(true));
    let _hold = limiter.hold("k", &releasing, 7).await.unwrap();
    clock.advance(TTL);
    assert!(!limiter.check("new", &tokens(), 1).await.unwrap().is_allowed(), "the count was dropped");
    assert_eq!(available(&limiter, &tokens()).await, 3);
}

/// The limit was lowered after the first charge: 10 units now leave a bucket in a minute instead of 60 ms.
#[tokio::test]
async fn a_full_store_keeps_expired_holds_for_as_long_as_the_lowered_limit_needs() {
    let clock = ManualClock::default();
    let limiter = Limiter::new(store(WhenFull::Deny).with_clock(clock.clone()));
    let [high, low] = [10_000, 10].map(|limit| {
        let policy = Policy::per_minute("tokens", limit).unwrap().with_algorithm(Algorithm::TokenBucket);
        policy.with_holds(HoldSettings::new().with_ttl(TTL))
    });
    assert!(limiter.check("k", &high, 1).await.unwrap().is_allowed());
    let _hold = limiter.hold("k", &low, 9).await.unwrap();
    clock.advance(TTL + Duration::from_secs(1));
    assert!(!limiter.check("new", &high, 1).await.unwrap().is_allowed(), "the count was dropped");
    assert!(available(&limiter, &low).await <= 1);
}

/// A minute begins when the units are charged, by a settlement or at the end of the hold.
#[tokio::test]
async fn a_full_store_keeps_what_a_hold_has_charged_until_it_has_left_and_not_longer() {
    for ((algorithm, seconds), is_settled) in
        ALGORITHMS.into_iter().zip([60, 120, 60, 42]).flat_map(|one| [(one, true), (one, false)])
    {
        let (clock, policy) = (ManualClock::default(), of(algorithm, 10));
        let limiter = Limiter::new(store(WhenFull::Deny).with_clock(clock.clone()));
        clock.advance(Duration::from_secs(60) - if is_settled { Duration::ZERO } else { TTL });
        let hold = limiter.hold("k", &policy, 7).await.unwrap().into_result().unwrap();
        if is_settled {
            hold.settle(7).await.unwrap();
        } else {
            std::mem::forget(hold);
            clock.advance(TTL);
        }
        let microsecond = Duration::from_micros(1);
        for (passed, has_left) in [(Duration::from_secs(seconds) - microsecond, false), (2 * microsecond, true)] {
            clock.advance(passed);
            let new = limiter.check("new", &policy, 1).await.unwrap();
            assert_eq!(new.is_allowed(), has_left, "{algorithm:?}, settled: {is_settled}");
        }
    }
}

#[tokio::test]
async fn a_settlement_that_does_not_fit_counts_as_a_further_denial_in_a_full_store() {
    let limiter = Limiter::new(MemoryStore::with_capacity(2).unwrap().when_full(WhenFull::Deny));
    let policy = tokens().ban_after(2, Duration::from_secs(600));
    let hold = async || limiter.hold("k", &policy, 1).await.unwrap().into_result().unwrap();
    // The count of denials takes the last place.
    for hold in [hold().await, hold().await] {
        hold.settle(10).await.unwrap();
    }
    assert!(limiter.peek("k", &policy).await.unwrap().policies()[0].ban.is_some());
}

#[tokio::test]
async fn a_settlement_that_counts_as_a_denial_evicts_and_warns_as_a_check_does() {
    let policy = tokens().ban_after(5, Duration::from_secs(600));
    for (keys, evicted) in [(3, 0), (2, 1)] {
        let (recorder, memory) = (Recorder::default(), MemoryStore::with_capacity(keys).unwrap());
        let limiter = Limiter::new(memory.clone()).with_observer(recorder.clone());
        let hold = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
        assert!(limiter.check("other", &policy, 1).await.unwrap().is_allowed());
        hold.settle(11).await.unwrap();
        assert_eq!((memory.evicted(), recorder.take().warnings.len() as u64), (evicted, evicted));
    }
}

#[tokio::test]
async fn new_keys_hold_units_of_the_bucket_that_they_share() {
    let limiter = Limiter::new(store(WhenFull::ShareOneKey));
    let _own = limiter.hold("k", &tokens(), 4).await.unwrap();
    let hold = limiter.hold("a", &tokens(), 7).await.unwrap().into_result().unwrap();
    assert!(!limiter.hold("b", &tokens(), 4).await.unwrap().is_allowed());
    assert_eq!(hold.settle(2).await.unwrap(), SettleAnswer::Settled);
    assert!(limiter.hold("b", &tokens(), 8).await.unwrap().is_allowed());
}

/// A key that gets a count of its own takes the holds of the bucket with it, which stay in the bucket as well.
#[tokio::test]
async fn a_settlement_that_does_not_fit_is_charged_in_the_bucket_that_new_keys_share() {
    for policy in [tokens(), tokens().ban_after(5, Duration::from_secs(600))] {
        let clock = ManualClock::default();
        let limiter = Limiter::new(store(WhenFull::ShareOneKey).with_clock(clock.clone()));
        let short = Policy::per_second("short", 1).unwrap();
        assert!(limiter.check("kept", &short, 1).await.unwrap().is_allowed());
        let in_bucket = limiter.hold("a", &policy, 7).await.unwrap().into_result().unwrap();
        clock.advance(Duration::from_secs(1));
        let _own = limiter.hold("a", &policy, 1).await.unwrap();
        assert_eq!(in_bucket.settle(10).await.unwrap(), SettleAnswer::Settled);
        assert_eq!(limiter.peek("b", &policy).await.unwrap().available(), Some(0));
    }
}

/// The default drops a live count for a new key, and says so.
#[tokio::test]
async fn a_dropped_count_with_holds_is_reported() {
    let (recorder, evictions) = (Recorder::default(), Arc::new(store(WhenFull::EvictLeastSpent)));
    let limiter = Limiter::new(MemoryStore::clone(&evictions)).with_observer(recorder.clone());
    let hold = limiter.hold("k", &tokens(), 4).await.unwrap().into_result().unwrap();
    assert!(limiter.hold("new", &tokens(), 1).await.unwrap().is_allowed());
    assert_eq!(evictions.evicted(), 1);
    assert_eq!(hold.settle(4).await.unwrap(), SettleAnswer::Expired, "its units are gone with the count");
}

/// A dropped count of slots lets more run than the limit says, so it goes after all others.
#[tokio::test]
async fn law_14_a_full_store_drops_counts_with_open_slots_last() {
    let store = MemoryStore::with_capacity(1_000).unwrap();
    let limiter = Limiter::new(store.clone());
    let (uploads, daily) = (Policy::concurrent("uploads", 10).unwrap(), Policy::per_day("daily", 10).unwrap());
    let mut open = Vec::new();
    for key in 0..200_u64 {
        open.extend(limiter.hold(key, &uploads, 1).await.unwrap().into_result().ok());
    }
    for key in 0..800_u64 {
        assert!(limiter.check(key, &daily, 9).await.unwrap().is_allowed());
    }
    for key in 1_000..1_400_u64 {
        assert!(limiter.check(key, &daily, 10).await.unwrap().is_allowed());
    }
    assert_eq!((open.len(), store.evicted()), (200, 400));
    for (key, hold) in (0..200_u64).zip(open) {
        assert_eq!(hold.release().await.unwrap(), SettleAnswer::Settled, "the slot of {key} was dropped");
    }
}
