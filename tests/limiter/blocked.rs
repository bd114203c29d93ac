//! Blocked policies refuse everything, and need no store.

use std::time::Duration;

use tollgate::{
    Check, Decision, FailurePolicy, Limiter, MemoryStore, Policy, decision::Source, plans::Plans, policy::Policies,
    rejection::Reason,
};

use crate::support::{DownStore, PendingStore, per_minute, recorder::Recorder, says};

fn blocked() -> Policy {
    Policy::blocked("suspended").unwrap()
}

fn assert_blocked(decision: &Decision) {
    assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Policy));
    assert_eq!((decision.available(), decision.retry_after(), decision.time()), (Some(0), None, None));
    let names: Vec<&str> = decision.violated().map(|violated| violated.policy.name()).collect();
    assert_eq!(names, ["suspended"]);
}

/// Also while the store is away, under every failure policy.
#[tokio::test]
async fn every_call_is_denied_at_once_without_the_store() {
    let stores =
        [Limiter::new(MemoryStore::new()), Limiter::new(PendingStore(MemoryStore::new())), Limiter::new(DownStore)];
    for limiter in stores.map(|limiter| limiter.with_local_fallback(MemoryStore::new(), 2)) {
        let blocked = blocked();
        for cost in [0, 1, u64::MAX] {
            assert_blocked(&FailurePolicy::Open.resolve(limiter.check("k", &blocked, cost).await));
            assert_blocked(&limiter.check("k", &blocked, cost).fail_local().await.unwrap());
            assert_blocked(&limiter.try_check("k", &blocked, cost).unwrap());
            assert_blocked(&limiter.peek_all(Check::new("k", &blocked, cost)).await.unwrap());
            assert_blocked(&limiter.acquire("k", &blocked, cost).within(Duration::from_secs(60)).await.unwrap());
        }
        assert_blocked(&limiter.peek("k", &blocked).await.unwrap());
        assert_blocked(&limiter.check_up_to("k", &blocked, 9).await.unwrap());
        let other = per_minute("other", 9);
        for cost in [0, 1] {
            let waiting = limiter.acquire("k", &other, 1).and(&blocked, cost).within(Duration::from_secs(60));
            assert_blocked(&waiting.await.unwrap());
        }
        let denial = limiter.hold("k", &blocked, 1).await.unwrap().into_result().unwrap_err();
        assert_eq!((denial.reason(), denial.status().as_u16()), (Reason::Blocked, 403));
        assert_eq!(denial.to_string(), "request refused: policy \"suspended\" is blocked");
    }
}

#[tokio::test]
async fn law_3_a_check_with_a_blocked_policy_charges_nothing() {
    let limiter = Limiter::new(MemoryStore::new());
    let (plain, held) = (per_minute("plain", 9), Policy::concurrent("slots", 1).unwrap());
    assert_blocked(&limiter.check_all(Check::new("k", &plain, 5).and("k", &blocked(), 1)).await.unwrap());
    assert_blocked(&limiter.try_check_all(Check::new("k", &blocked(), 1).and("k", &plain, 5)).unwrap());
    let check = Check::hold("k", &held, 1).and("k", &blocked(), 1);
    assert!(limiter.hold_all(check).await.unwrap().into_result().is_err());
    let alternatives = Check::first_of("k", [&plain, &per_minute("credits", 9)], 5).and("k", &blocked(), 1);
    assert_blocked(&limiter.check_all(alternatives).await.unwrap());
    assert_eq!(limiter.peek("k", &plain).await.unwrap().available(), Some(9));
    assert!(limiter.hold("k", &held, 1).await.unwrap().into_result().is_ok());
}

#[tokio::test]
async fn a_blocked_shadow_policy_reports_and_refuses_nothing() {
    let shadow = blocked().with_shadow(true);
    let later = Limiter::new(PendingStore(MemoryStore::new()));
    for (limiter, peeks) in [(Limiter::new(MemoryStore::new()), true), (later, false)] {
        let plain = per_minute("plain", 9);
        for cost in [0, 1] {
            let decision = limiter.check("k", &shadow, cost).await.unwrap();
            assert!(decision.is_allowed() && decision.would_deny() && decision.source() == Source::Policy);
        }
        let check = Check::new("k", &shadow, 5).and("k", &plain, 5);
        if peeks {
            let decision = limiter.peek_all(check.clone()).await.unwrap();
            assert!(decision.is_allowed() && decision.would_deny());
        }
        let decision = limiter.check_all(check.clone()).await.unwrap();
        assert!(decision.is_allowed() && decision.would_deny() && decision.source() == Source::Store);
        let left: Vec<u64> = decision.policies().iter().map(|standing| standing.available).collect();
        assert_eq!(left, [0, 4]);
        let denied = limiter.check_all(check.clone()).await.unwrap();
        assert!(!denied.is_allowed() && denied.retry_after().is_some(), "the plain policy is spent");
        assert!(!peeks || !limiter.peek_all(check).await.unwrap().is_allowed());
        assert!(limiter.hold("k", &shadow, 1).await.unwrap().into_result().is_ok());
    }
}

/// The fallback judges the other charges.
#[tokio::test]
async fn a_blocked_shadow_policy_refuses_nothing_while_the_store_is_away() {
    let limiter = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 1);
    let check = || Check::new("k", &blocked().with_shadow(true), 1).and("k", &per_minute("plain", 2), 1);
    for allowed in [true, true, false] {
        let decision = limiter.check_all(check()).fail_local().await.unwrap();
        assert_eq!((decision.is_allowed(), decision.would_deny(), decision.source()), (allowed, true, Source::Local));
    }
}

#[tokio::test]
async fn a_blocked_policy_has_no_count_to_change() {
    let limiter = Limiter::new(MemoryStore::new());
    let blocked = blocked();
    says(limiter.record("k", &blocked, 1).await.unwrap_err(), "it is blocked and counts nothing");
    assert!(limiter.credit("k", &blocked, 1).await.is_err());
    assert!(limiter.ban("k", &blocked, Duration::from_secs(1)).await.is_err());
    assert!(!limiter.reset("k", &blocked).await.unwrap());
    let alternatives = Check::first_of("k", [&per_minute("p", 1), &blocked], 1);
    says(limiter.try_check_all(alternatives).unwrap_err(), "it is blocked and never has room");
}

#[tokio::test]
async fn observers_read_that_a_check_was_blocked() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(MemoryStore::new()).with_observer(recorder.clone());
    let _ = limiter.check_all(Check::new("k", &per_minute("p", 9), 1).and("k", &blocked(), 1)).await;
    assert_eq!(recorder.outcomes(), [("blocked", Source::Policy)]);
}

/// Until the first look-up has ended, each key would be without a limit.
#[tokio::test]
async fn a_check_of_an_unlimited_plan_is_allowed_without_the_store() {
    let source = |_| async { Ok::<_, &str>(None::<Policy>) };
    says(Plans::new(source, Policies::unlimited()).unwrap_err(), "the default plan is unlimited");
    let plans = Plans::new(source, per_minute("free", 1)).unwrap();
    plans.insert("staff", Policies::unlimited()).unwrap();
    let limiter = Limiter::new(DownStore);
    for _ in 0..3 {
        let decision = limiter.check_all(plans.check("staff", 1)).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Policy));
        assert!(decision.policies().is_empty() && decision.available().is_none());
        assert!(limiter.try_check_all(plans.check("staff", 1)).unwrap().is_allowed());
        assert!(limiter.peek_all(plans.check("staff", 1)).await.unwrap().is_allowed());
        assert!(limiter.hold_all(plans.check("staff", 1)).await.unwrap().into_result().is_ok());
    }
    // The other policies of the check apply.
    assert!(limiter.check_all(plans.check("staff", 1).and("all", &per_minute("all", 1), 1)).await.is_err());
    assert!(limiter.check_all(plans.check("other", 1)).await.is_err());
}
