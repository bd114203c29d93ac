//! `MemoryStore::clear`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{thread, time::Duration};

use tollgate::{Check, Limiter, ManualClock, MemoryStore, Policy, limiter::HoldAnswer, store::WhenFull};

#[tokio::test]
async fn everything_is_forgotten_and_every_key_starts_anew() {
    let store = MemoryStore::new().with_clock(ManualClock::default());
    let limiter = Limiter::new(store.clone());
    let [plain, banned] = ["plain", "banned"].map(|name| Policy::per_hour(name, 2).unwrap());
    let banning = Policy::per_hour("banning", 1).unwrap().ban_after(1, Duration::from_secs(600));
    let slots = Policy::concurrent("slots", 1).unwrap();
    let mut held = Vec::new();
    for key in 0..1_000_u32 {
        assert!(limiter.check(key, &plain, 2).await.unwrap().is_allowed());
        limiter.ban(key, &banned, Duration::from_secs(600)).await.unwrap();
        let _ = limiter.check(key, &banning, 1).await.unwrap();
        assert!(!limiter.check(key, &banning, 1).await.unwrap().is_allowed());
        held.push(limiter.hold(key, &slots, 1).await.unwrap());
    }
    assert_eq!(store.keys(), 5_000);
    store.clone().clear();
    assert_eq!((store.keys(), store.evicted()), (0, 0));
    for key in 0..1_000_u32 {
        assert!(limiter.check(key, &plain, 2).await.unwrap().is_allowed());
        assert!(!limiter.check(key, &plain, 1).await.unwrap().is_allowed(), "the new count is kept");
        assert!(limiter.check(key, &banned, 2).await.unwrap().is_allowed());
        assert!(limiter.check(key, &banning, 1).await.unwrap().is_allowed());
    }
    // A hold of before is gone, and its end takes nothing from the new one.
    let new = limiter.hold(0_u32, &slots, 1).await.unwrap();
    assert!(new.is_allowed());
    for hold in held {
        if let HoldAnswer::Open(hold) = hold {
            hold.release().await.unwrap();
        }
    }
    assert!(!limiter.hold(0_u32, &slots, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn the_bucket_that_new_keys_share_is_forgotten_too() {
    let store = MemoryStore::with_capacity(1).unwrap().with_clock(ManualClock::default());
    let limiter = Limiter::new(store.clone().when_full(WhenFull::ShareOneKey)).without_notices();
    let policy = Policy::per_hour("p", 3).unwrap();
    for key in ["a", "b"] {
        assert!(limiter.check(key, &policy, 3).await.unwrap().is_allowed());
    }
    assert!(!limiter.check("c", &policy, 1).await.unwrap().is_allowed(), "it shares with b");
    store.clear();
    assert!(limiter.check("c", &policy, 3).await.unwrap().is_allowed());
    assert!(limiter.check("d", &policy, 3).await.unwrap().is_allowed());
    assert!(!limiter.check("e", &policy, 1).await.unwrap().is_allowed());
}

#[test]
fn a_check_of_several_keys_is_counted_before_or_after_as_a_whole() {
    let store = MemoryStore::new();
    let limiter = Limiter::new(store.clone());
    let policy = Policy::per_hour("p", 1_000_000_000).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let check = (0..20_u32).fold(Check::new(100_u32, &policy, 1), |check, key| check.and(key, &policy, 1));
            while !done.load(Ordering::Relaxed) {
                assert!(limiter.try_check_all(check.clone()).unwrap().is_allowed());
            }
        });
        for _ in 0..200 {
            store.clear();
            let check = (0..20_u32).fold(Check::new(100_u32, &policy, 0), |check, key| check.and(key, &policy, 0));
            let seen = limiter.try_check_all(check).unwrap();
            let available: Vec<_> = seen.policies().iter().map(|policy| policy.available).collect();
            assert!(available.windows(2).all(|pair| pair[0] == pair[1]), "{available:?}");
        }
        done.store(true, Ordering::Relaxed);
    });
}
