//! Alternatives: of several policies, the first with room is charged, whole, and nothing of the others.

mod fallback;
mod traces;

use std::time::Duration;

use tollgate::{
    Algorithm, Check, Decision, ErrorKind, Limiter, ManualClock, MemoryStore, Policy, limiter::HoldAnswer,
    policy::HoldSettings,
};

use crate::support::app::{limiter, limiter_and_clock};
use crate::support::says;

fn policy(name: &str, limit: u64) -> Policy {
    Policy::per_minute(name, limit).unwrap()
}

fn named(decision: &Decision) -> &str {
    assert_eq!(decision.policies().len(), 1, "{decision:?}");
    decision.policies()[0].policy.name()
}

async fn left(limiter: &Limiter, policy: &Policy) -> u64 {
    limiter.peek("k", policy).await.unwrap().available().unwrap()
}

#[tokio::test]
async fn the_first_policy_with_room_is_charged_whole_and_nothing_of_the_others() {
    let limiter = limiter();
    let (included, credits) = (policy("included", 10), policy("credits", 20));
    let check = |cost| limiter.check_all(Check::first_of("k", [&included, &credits], cost));
    assert_eq!(named(&check(6).await.unwrap()), "included");
    // Four are left of the included ones, and are not taken in part.
    let decision = check(5).await.unwrap();
    assert_eq!((named(&decision), decision.available()), ("credits", Some(15)));
    assert_eq!((left(&limiter, &included).await, left(&limiter, &credits).await), (4, 15));
    assert_eq!(named(&check(4).await.unwrap()), "included");
    assert_eq!(named(&check(15).await.unwrap()), "credits");
    assert_eq!((left(&limiter, &included).await, left(&limiter, &credits).await), (0, 0));
}

#[tokio::test]
async fn a_denial_has_the_shortest_wait_and_that_request_passes_then() {
    let (limiter, clock) = limiter_and_clock();
    let (slow, fast) = (Policy::per_hour("slow", 1).unwrap(), policy("fast", 1));
    for alternatives in [[&slow, &fast], [&fast, &slow]] {
        let check = || limiter.check_all(Check::first_of("k", alternatives, 1));
        assert!(check().await.unwrap().is_allowed() && check().await.unwrap().is_allowed());
        let denied = check().await.unwrap();
        let wait = denied.retry_after().unwrap();
        assert_eq!((denied.is_allowed(), named(&denied), wait), (false, "fast", Duration::from_secs(60)));
        clock.advance(wait - Duration::from_micros(1));
        assert!(!check().await.unwrap().is_allowed(), "a microsecond early");
        clock.advance(Duration::from_micros(1));
        assert_eq!(named(&check().await.unwrap()), "fast");
        clock.advance(Duration::from_secs(3_600));
    }
}

#[tokio::test]
async fn a_cost_above_one_limit_goes_to_the_others_and_one_above_all_never_passes() {
    let limiter = limiter();
    let (small, large) = (policy("small", 2), policy("large", 9));
    assert_eq!(named(&limiter.check_all(Check::first_of("k", [&small, &large], 3)).await.unwrap()), "large");
    let denied = limiter.check_all(Check::first_of("k", [&small, &large], 10)).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, None));
}

#[tokio::test]
async fn law_3_beside_other_charges_all_are_charged_or_none() {
    let limiter = limiter();
    let (included, credits, narrow) = (policy("included", 1), policy("credits", 1), policy("narrow", 2));
    let check = || {
        let check = Check::new("k", &narrow, 1).and_first_of("k", [&included, &credits], 1);
        limiter.check_all(check)
    };
    for charged in ["included", "credits"] {
        let decision = check().await.unwrap();
        let names: Vec<&str> = decision.policies().iter().map(|standing| standing.policy.name()).collect();
        assert!(decision.is_allowed());
        assert_eq!(names, ["narrow", charged]);
    }
    let wide = policy("wide", 9);
    let denied =
        limiter.check_all(Check::new("k", &wide, 1).and_first_of("k", [&included, &credits], 1)).await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(denied.violated().map(|standing| standing.policy.name()).collect::<Vec<_>>(), ["included"]);
    assert_eq!(left(&limiter, &wide).await, 9, "none of several alternatives had room");
    let (first, second) = (policy("first", 5), policy("second", 5));
    let denied = limiter.check_all(Check::first_of("k", [&first, &second], 1).and("k", &narrow, 1)).await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!((left(&limiter, &first).await, left(&limiter, &second).await), (5, 5));
}

#[tokio::test]
async fn rejections_and_denials_count_only_if_all_deny() {
    let limiter = limiter();
    let counting = policy("counting", 4).with_denials_counted(true);
    let banning = policy("banning", 1).ban_after(2, Duration::from_secs(600));
    let credits = policy("credits", 6);
    let check = |cost| limiter.check_all(Check::first_of("k", [&counting, &banning, &credits], cost));
    assert_eq!(named(&check(4).await.unwrap()), "counting");
    assert_eq!(named(&check(1).await.unwrap()), "banning");
    for _ in 0..6 {
        assert_eq!(named(&check(1).await.unwrap()), "credits", "five denials of the others have counted nothing");
    }
    assert_eq!(limiter.peek("k", &banning).await.unwrap().policies()[0].ban, None);
    for _ in 0..2 {
        assert!(!check(1).await.unwrap().is_allowed());
    }
    assert!(limiter.peek("k", &banning).await.unwrap().policies()[0].ban.is_some(), "two denials of all");
}

#[tokio::test]
async fn a_key_that_is_banned_under_one_policy_has_the_room_of_the_others() {
    let limiter = limiter();
    let (included, credits) = (policy("included", 5), policy("credits", 5));
    limiter.ban("k", &included, Duration::from_secs(600)).await.unwrap();
    let check = || limiter.check_all(Check::first_of("k", [&included, &credits], 5));
    assert_eq!(named(&check().await.unwrap()), "credits");
    let denied = check().await.unwrap();
    assert_eq!((named(&denied), denied.retry_after()), ("credits", Some(Duration::from_secs(60))));
}

#[tokio::test]
async fn a_cost_of_0_says_what_would_be_charged() {
    let limiter = limiter();
    let (included, credits) = (policy("included", 2), policy("credits", 2));
    for expected in ["included", "included", "credits", "credits", "included"] {
        let peek = limiter.check_all(Check::first_of("k", [&included, &credits], 0)).await.unwrap();
        assert_eq!(named(&peek), expected);
        assert!(peek.is_allowed());
        let _ = limiter.check_all(Check::first_of("k", [&included, &credits], 1)).await.unwrap();
    }
}

#[tokio::test]
async fn the_hold_belongs_to_the_policy_that_the_decision_names() {
    let limiter = limiter();
    let [included, credits] =
        [("included", 10), ("credits", 20)].map(|(name, limit)| policy(name, limit).with_holds(HoldSettings::new()));
    let hold = |cost| {
        let check = Check::hold("k", &policy("beside", 100).with_holds(HoldSettings::new()), 1);
        limiter.hold_all(check.and_hold_first_of("k", [&included, &credits], cost))
    };
    let HoldAnswer::Open(first) = hold(8).await.unwrap() else { panic!("denied") };
    let HoldAnswer::Open(second) = hold(8).await.unwrap() else { panic!("denied") };
    assert_eq!(second.decision().policies()[1].policy.name(), "credits");
    assert_eq!((left(&limiter, &included).await, left(&limiter, &credits).await), (2, 12));
    second.settle(3).await.unwrap();
    assert_eq!((left(&limiter, &included).await, left(&limiter, &credits).await), (2, 17));
    first.release().await.unwrap();
    assert_eq!((left(&limiter, &included).await, left(&limiter, &credits).await), (10, 17));
}

#[tokio::test]
async fn shadow_alternatives_deny_nothing_and_charge_one_at_most() {
    let limiter = limiter();
    let shadows = ["a", "b"].map(|name| policy(name, 1).with_shadow(true));
    for (name, would_deny) in [("a", false), ("b", false), ("a", true)] {
        let decision = limiter.check_all(Check::first_of("k", &shadows, 1)).await.unwrap();
        assert_eq!((decision.is_allowed(), named(&decision), decision.would_deny()), (true, name, would_deny));
    }
}

#[tokio::test]
async fn a_store_without_alternatives_is_an_error_that_says_so() {
    #[derive(Debug)]
    struct Plain(MemoryStore);
    impl tollgate::store::Store for Plain {
        fn check(&self, check: &Check) -> tollgate::store::Answer<tollgate::store::Verdict> {
            self.0.check(check)
        }
        fn reset(&self, key: &tollgate::Key, policy: &Policy) -> tollgate::store::Answer<bool> {
            self.0.reset(key, policy)
        }
    }
    let limiter = Limiter::new(Plain(MemoryStore::new()));
    let error = limiter.check_all(Check::first_of("k", [&policy("a", 1), &policy("b", 1)], 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCall);
    says(error, "Store::has_alternatives");
}

/// Every algorithm, and two alternatives that differ in it.
#[tokio::test]
async fn law_1_no_alternative_is_ever_over_its_limit() {
    for (one, other) in [
        (Algorithm::SlidingWindowLog, Algorithm::TokenBucket),
        (Algorithm::FixedWindow, Algorithm::SlidingWindowCounter),
    ] {
        let clock = ManualClock::default();
        let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
        let (first, second) = (policy("first", 7).with_algorithm(one), policy("second", 5).with_algorithm(other));
        let mut charged = [0, 0];
        for _ in 0..30 {
            let decision = limiter.check_all(Check::first_of("k", [&first, &second], 1)).await.unwrap();
            if decision.is_allowed() {
                charged[usize::from(named(&decision) == "second")] += 1;
            }
        }
        assert_eq!(charged, [7, 5]);
    }
}
