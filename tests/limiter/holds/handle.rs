//! What a caller does with a handle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tollgate::store::{FailingStore, SettleAnswer};
use tollgate::{
    Check, ErrorKind, FailurePolicy, Limiter, Policy, decision::Source, limiter::HoldAnswer, policy::HoldSettings,
};

use super::{TTL, available, limiter, tokens, with_holds};
use crate::support::{DownStore, recorder::Recorder};

#[tokio::test]
async fn a_hold_counts_until_it_is_settled_with_what_the_work_has_cost() {
    let (limiter, _) = limiter();
    let hold = limiter.hold("k", &tokens(), 8).await.unwrap().into_result().unwrap();
    assert_eq!(hold.decision().available(), Some(2));
    assert!(!limiter.check("k", &tokens(), 3).await.unwrap().is_allowed(), "a plain check sees the hold");
    assert_eq!(hold.settle(3).await.unwrap(), SettleAnswer::Settled);
    assert_eq!(available(&limiter, &tokens()).await, 7);

    let hold = limiter.hold("k", &tokens(), 7).await.unwrap().into_result().unwrap();
    assert_eq!(hold.release().await.unwrap(), SettleAnswer::Settled);
    assert_eq!(available(&limiter, &tokens()).await, 7);
}

#[tokio::test]
async fn a_denied_hold_holds_nothing() {
    let (limiter, _) = limiter();
    let HoldAnswer::Denied(decision) = limiter.hold("k", &tokens(), 11).await.unwrap() else {
        panic!("above the limit")
    };
    assert_eq!(decision.retry_after(), None, "no wait helps");
    let _hold = limiter.hold("k", &tokens(), 10).await.unwrap();
    let held = limiter.hold("k", &tokens(), 1).await.unwrap();
    assert!(!held.is_allowed());
    assert_eq!(held.decision().retry_after(), Some(Duration::from_secs(1)), "a hold may end at any time");
    assert!(held.into_result().is_err());
}

#[tokio::test]
async fn a_handle_that_is_dropped_ends_as_its_policy_says() {
    for (released, left) in [(false, 6), (true, 10)] {
        let (limiter, clock) = limiter();
        let policy = with_holds(10, HoldSettings::new().with_unsettled_released(released));
        drop(limiter.hold("k", &policy, 4).await.unwrap());
        assert_eq!(available(&limiter, &policy).await, left, "at once, not when its time has passed");
        clock.advance(Duration::from_secs(60));
        assert_eq!(available(&limiter, &policy).await, 10, "charged when it was dropped");
    }
}

/// A process that is killed runs no destructors.
#[tokio::test]
async fn a_hold_whose_handle_is_lost_ends_at_its_time_to_live() {
    for (released, left) in [(false, 6), (true, 10)] {
        let (limiter, clock) = limiter();
        let policy = with_holds(10, HoldSettings::new().with_unsettled_released(released));
        std::mem::forget(limiter.hold("k", &policy, 4).await.unwrap());
        clock.advance(TTL - Duration::from_micros(1));
        assert_eq!(available(&limiter, &policy).await, 6);
        clock.advance(Duration::from_micros(1));
        assert_eq!(available(&limiter, &policy).await, left);
    }
}

#[tokio::test]
async fn a_hold_that_is_renewed_lives_longer_and_one_that_is_late_has_expired() {
    let (limiter, clock) = limiter();
    let hold = limiter.hold("k", &tokens(), 4).await.unwrap().into_result().unwrap();
    for _ in 0..3 {
        clock.advance(TTL - Duration::from_micros(1));
        assert_eq!(hold.renew().await.unwrap(), SettleAnswer::Settled);
    }
    clock.advance(TTL);
    assert_eq!(hold.renew().await.unwrap(), SettleAnswer::Expired);
    assert_eq!(hold.settle(0).await.unwrap(), SettleAnswer::Expired);
    assert_eq!(available(&limiter, &tokens()).await, 6, "charged at its end");
}

#[tokio::test]
async fn the_holds_of_a_check_are_made_and_settled_together() {
    let (limiter, _) = limiter();
    let (requests, cents) = (Policy::per_minute("requests", 2).unwrap(), tokens());
    let check = |cost| {
        let tokens = Policy::per_minute("more", 100).unwrap().with_holds(HoldSettings::new());
        Check::new("k", &requests, 1).and_hold("k", &cents, cost).and_hold("k", &tokens, 50)
    };
    assert!(!limiter.hold_all(check(11)).await.unwrap().is_allowed());
    assert_eq!(available(&limiter, &requests).await, 2, "a denied hold charges nothing");
    let hold = limiter.hold_all(check(6)).await.unwrap().into_result().unwrap();
    let settlement = hold.settle_by(|policy| if policy.name() == "more" { 40 } else { 1 }).await.unwrap();
    assert_eq!(settlement, SettleAnswer::Settled);
    let left = limiter.hold_all(check(1)).await.unwrap();
    let left: Vec<u64> = left.decision().policies().iter().map(|standing| standing.available).collect();
    assert_eq!(left, [0, 8, 10]);
}

/// The closure panics for the second hold, and the handle is dropped while it unwinds.
#[tokio::test]
async fn law_15_a_closure_that_panics_leaves_no_hold_of_the_handle_behind() {
    let (limiter, _) = limiter();
    let tokens = with_holds(10, HoldSettings::new().with_unsettled_released(true));
    let slots = Policy::concurrent("slots", 3).unwrap();
    let check = Check::hold("k", &tokens, 4).and_hold("k", &slots, 1);
    let hold = limiter.hold_all(check).await.unwrap().into_result().unwrap();
    let usage = |policy: &Policy| if policy.name() == "slots" { panic!("the closure of a test") } else { 3 };
    assert!(catch_unwind(AssertUnwindSafe(|| hold.settle_by(usage))).is_err());
    assert_eq!(available(&limiter, &tokens).await, 10, "released, as a handle that is dropped");
    assert_eq!(available(&limiter, &slots).await, 3);
}

#[tokio::test]
async fn a_check_that_is_sent_twice_makes_two_holds() {
    let (limiter, _) = limiter();
    let check = Check::hold("k", &tokens(), 3);
    let first = limiter.hold_all(check.clone()).await.unwrap().into_result().unwrap();
    let _second = limiter.hold_all(check).await.unwrap();
    assert_eq!(available(&limiter, &tokens()).await, 4);
    first.release().await.unwrap();
    assert_eq!(available(&limiter, &tokens()).await, 7);
}

#[tokio::test]
async fn a_shadow_hold_that_does_not_fit_holds_nothing() {
    let (limiter, _) = limiter();
    let shadow = tokens().with_shadow(true);
    let first = limiter.hold("k", &shadow, 8).await.unwrap().into_result().unwrap();
    let second = limiter.hold("k", &shadow, 8).await.unwrap().into_result().expect("a shadow policy denies nothing");
    assert!(second.decision().would_deny());
    assert_eq!(second.settle(8).await.unwrap(), SettleAnswer::NotHeld);
    assert_eq!(first.settle(8).await.unwrap(), SettleAnswer::Settled);
    assert_eq!(available(&limiter, &tokens()).await, 2);
}

#[tokio::test]
async fn a_wrong_hold_is_an_error_that_says_what_to_write() {
    let (limiter, _) = limiter();
    let plain = Policy::per_minute("p", 10).unwrap();
    let counting = tokens().with_denials_counted(true);
    for (policy, cost, advice) in [
        (&plain, 1, ".with_holds(HoldSettings::new())"),
        (&counting, 1, "with_denials_counted"),
        (&tokens(), 0, "1 or more"),
    ] {
        let error = limiter.hold("k", policy, cost).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
        assert!(error.to_string().contains(advice), "{error}");
    }
    let check = Check::hold("k", &tokens(), 1);
    for result in [limiter.check_all(check.clone()).await, limiter.try_check_all(check.clone())] {
        assert!(result.unwrap_err().to_string().contains("Limiter::hold_all"));
    }
    assert_eq!(available(&limiter, &tokens()).await, 10);
    let nothing = limiter.check("k", &Policy::concurrent("slots", 1).unwrap(), 0).await.unwrap();
    assert!(nothing.is_allowed(), "no slot has to come back");
    for check in [Check::new("k", &tokens(), 1).and_hold("k", &tokens(), 1), check.and("k", &tokens(), 1)] {
        assert!(limiter.hold_all(check).await.unwrap_err().to_string().contains("both holds and charges"));
    }
    let error = Limiter::new(DownStore).hold("k", &tokens(), 1).await.unwrap_err();
    assert!(error.to_string().contains("Store::change_hold"), "{error}");
}

#[test]
fn holds_exclude_shards_and_counted_rejections() {
    let policy = Policy::per_minute("p", 10).unwrap();
    for excluded in [policy.clone().with_shards(2), policy.clone().with_denials_counted(true)] {
        assert!(excluded.with_holds(HoldSettings::new()).validated().is_err());
    }
    assert!(tokens().ban_after(3, Duration::from_secs(60)).validated().is_ok());
    assert!(tokens().with_shards(2).validated().is_err());
    assert!(tokens().with_denials_counted(true).validated().is_err());
    assert_eq!(tokens().with_denials_counted(false), tokens());
    for wrong in [Duration::ZERO, Policy::MAX_WINDOW + Duration::from_micros(1)] {
        for holds in [HoldSettings::new().with_ttl(wrong), HoldSettings::new().with_typical_duration(wrong)] {
            let error = policy.clone().with_holds(holds).validated().unwrap_err();
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }
}

#[tokio::test]
async fn without_the_store_the_failure_policy_decides_and_holds_nothing() {
    let limiter = Limiter::new(FailingStore::new());
    let error = limiter.hold("k", &tokens(), 1).await.unwrap_err();
    let closed = FailurePolicy::Closed.resolve::<HoldAnswer>(Err(error.clone()));
    assert_eq!((closed.is_allowed(), closed.decision().source()), (false, Source::Closed));
    let open = FailurePolicy::Open.resolve::<HoldAnswer>(Err(error));
    assert_eq!((open.is_allowed(), open.decision().source()), (true, Source::Open));
    let hold = open.into_result().unwrap();
    assert_eq!(hold.renew().await.unwrap(), SettleAnswer::NotHeld);
    assert_eq!(hold.settle(7).await.unwrap(), SettleAnswer::NotHeld);
}

#[tokio::test]
async fn a_reset_ends_holds() {
    let (limiter, _) = limiter();
    let hold = limiter.hold("k", &tokens(), 10).await.unwrap().into_result().unwrap();
    assert!(limiter.reset("k", &tokens()).await.unwrap());
    assert_eq!(available(&limiter, &tokens()).await, 10);
    assert_eq!(hold.settle(10).await.unwrap(), SettleAnswer::Expired);
    assert_eq!(available(&limiter, &tokens()).await, 10);
}

#[tokio::test]
async fn observers_see_how_each_hold_ends() {
    let (recorder, (limiter, clock)) = (Recorder::default(), limiter());
    let limiter = limiter.with_observer(recorder.clone());
    let hold = async || limiter.hold("k", &tokens(), 2).await.unwrap().into_result().unwrap();
    hold().await.settle(1).await.unwrap();
    hold().await.release().await.unwrap();
    drop(hold().await);
    let late = hold().await;
    clock.advance(TTL);
    late.settle(1).await.unwrap();
    let expected = [("settled", 1), ("released", 0), ("dropped", 2), ("expired", 1)];
    let expected = expected.map(|(end, actual)| ("tokens".to_owned(), 2, actual, end));
    assert_eq!(recorder.take().holds, expected);
}
