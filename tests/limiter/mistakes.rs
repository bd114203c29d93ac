//! Mistakes of a check and of a limiter: the first one is reported, and no call with one charges or passes.

use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::{
    Check, Decision, Error, ErrorKind, FailurePolicy, GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
    ThrottleLayer, policy::HoldSettings, rejection::Denial,
};

use crate::support::{DownStore, app::assert_mistaken, http, per_minute, recorder::Recorder, says};

const SECOND: Duration = Duration::from_secs(1);

fn tokens() -> Policy {
    per_minute("tokens", 10).with_holds(HoldSettings::new())
}

/// A check of the key `k` whose charges go on in `and`.
fn after_a_charge(and: fn(Check) -> Check) -> Check {
    and(Check::new("k", &per_minute("p", 10), 1))
}

/// A setting that is wrong, and its message.
type Wrong<T> = (fn(T) -> T, &'static str);

/// Additions to a check that are wrong, and their message.
const WRONG: [Wrong<Check>; 4] = [
    (|check| check.and("k", &per_minute("p", 20), 1), r#"two policies of one check are called "p" "#),
    (|check| check.and_hold("k", &per_minute("plain", 10), 1), r#"policy "plain" has no holds; "#),
    (|check| check.and_hold("k", &tokens(), 0), "a hold of 0 units would hold nothing; "),
    (|check| check.and("k", &tokens(), 1).and_hold("k", &tokens(), 1), "both holds and charges units of one key "),
];

/// Asserts that an error is the mistake, and that every failure policy refuses it.
#[track_caller]
pub(super) fn is_refused(error: &Error, message: &str) {
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::InvalidCall, false), "{error}");
    says(error, message);
    for policy in [FailurePolicy::Open, FailurePolicy::Closed, FailurePolicy::Local] {
        assert!(!policy.resolve::<Decision>(Err(error.clone())).is_allowed(), "{policy} lets it pass: {error}");
    }
    let denial = Denial::from(error.clone());
    assert_eq!((denial.status().as_u16(), denial.retry_after()), (500, None), "no wait helps");
    says(denial, message);
}

/// The mistake of a check, which the call with it returns.
fn mistake(check: Check) -> Error {
    Limiter::new(MemoryStore::new()).try_check_all(check).unwrap_err()
}

#[test]
fn a_check_reports_the_first_of_its_mistakes() {
    for (first, message) in WRONG {
        for (second, _) in WRONG {
            is_refused(&mistake(second(after_a_charge(first))), message);
        }
        is_refused(&mistake(after_a_charge(first).and("other", &per_minute("q", 1), 1)), message);
    }
}

#[test]
fn the_order_of_a_hold_and_a_charge_of_one_count_does_not_matter() {
    let mistakes = [
        mistake(Check::new("k", &tokens(), 1).and_hold("k", &tokens(), 1)),
        mistake(Check::hold("k", &tokens(), 1).and("k", &tokens(), 1)),
    ];
    assert_eq!(mistakes[0].to_string(), mistakes[1].to_string());
    is_refused(&mistakes[0], "both holds and charges units of one key ");
}

#[tokio::test]
async fn a_check_with_a_mistake_charges_nothing_and_is_never_allowed() {
    for limiter in
        [Limiter::new(MemoryStore::new()), Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 1)]
    {
        let limiter = limiter.without_notices();
        for (wrong, message) in WRONG {
            let check = after_a_charge(wrong);
            is_refused(&limiter.check_all(check.clone()).await.unwrap_err(), message);
            is_refused(&limiter.try_check_all(check.clone()).unwrap_err(), message);
            is_refused(&limiter.hold_all(check.clone()).await.unwrap_err(), message);
        }
        let (check, message) = (after_a_charge(WRONG[0].0), WRONG[0].1);
        let local = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 1).without_notices();
        is_refused(&local.check_all(check).fail_local().await.unwrap_err(), message);
    }
    let limiter = Limiter::new(MemoryStore::new());
    let _ = limiter.check_all(after_a_charge(WRONG[1].0)).await;
    assert_eq!(limiter.peek("k", &per_minute("p", 10)).await.unwrap().available(), Some(10));
}

/// Shadow policies refuse nothing, but the mistake is one of the program.
#[tokio::test]
async fn a_mistake_of_shadow_charges_is_an_error_too() {
    let shadow = |limit| per_minute("p", limit).with_shadow(true);
    let check = Check::new("k", &shadow(10), 1).and("k", &shadow(20), 1);
    is_refused(&Limiter::new(MemoryStore::new()).check_all(check).await.unwrap_err(), "two policies of one check ");
}

/// Settings of a limiter that are wrong, and their message.
const WRONG_LIMITERS: [Wrong<Limiter>; 3] = [
    (|limiter| limiter.with_local_fallback(MemoryStore::new(), 0), "0 instances would leave no share; "),
    (|limiter| limiter.with_max_waiters(0, 9), "no caller could wait with a bound of 0 waiters; "),
    (|limiter| limiter.with_max_waiters(9, 0), "no caller could wait with a bound of 0 waiters; "),
];

#[test]
fn a_limiter_reports_the_first_of_its_mistakes() {
    let limiter = || Limiter::new(MemoryStore::new());
    for (first, message) in WRONG_LIMITERS {
        for (second, _) in WRONG_LIMITERS {
            says(second(first(limiter())).validated().unwrap_err(), message);
        }
        let corrected = first(limiter()).with_local_fallback(MemoryStore::new(), 8).with_max_waiters(9, 9);
        says(corrected.validated().unwrap_err(), message);
    }
    assert!(limiter().with_local_fallback(MemoryStore::new(), 8).with_max_waiters(9, 9).validated().is_ok());
}

#[tokio::test]
async fn every_call_of_a_limiter_with_a_mistake_returns_it() {
    let (policy, held) = (per_minute("p", 10), tokens());
    for (wrong, message) in WRONG_LIMITERS {
        let limiter = wrong(Limiter::new(MemoryStore::new()));
        let mut errors = vec![
            limiter.check("k", &policy, 1).await.map(drop),
            limiter.check("k", &policy, 1).fail_local().await.map(drop),
            limiter.check_all(Check::new("k", &policy, 1)).await.map(drop),
            limiter.try_check("k", &policy, 1).map(drop),
            limiter.peek("k", &policy).await.map(drop),
            limiter.hold("k", &held, 1).await.map(drop),
            limiter.acquire("k", &policy, 1).within(SECOND).await.map(drop),
            limiter.acquire_hold("k", &held, 1).within(SECOND).await.map(drop),
            limiter.reset("k", &policy).await.map(drop),
            limiter.ban("k", &policy, SECOND).await,
            limiter.unban("k", &policy).await.map(drop),
            limiter.record("k", &policy, 1).await,
            limiter.credit("k", &policy, 1).await.map(drop),
            limiter.ready().await,
        ];
        // Later settings and clones do not lose the mistake.
        errors.push(limiter.clone().with_observer(Recorder::default()).check("k", &policy, 1).await.map(drop));
        for (number, result) in errors.into_iter().enumerate() {
            is_refused(&result.expect_err(&format!("call {number} has passed")), message);
        }
    }
}

#[tokio::test]
async fn a_layer_of_a_limiter_with_a_mistake_lets_no_request_pass() {
    for (wrong, message) in WRONG_LIMITERS {
        for store in [Limiter::new(MemoryStore::new()), Limiter::new(DownStore)] {
            let recorder = Recorder::default();
            let limiter = wrong(store.with_observer(recorder.clone()).without_notices());
            let throttle = ThrottleLayer::new(limiter.clone(), per_minute("p", 10), "upstream");
            says(throttle.fail_open().validated().unwrap_err(), message);
            let layer = RateLimitLayer::new(limiter, per_minute("p", 10), GlobalKey).fail_open();
            assert_mistaken(layer, &recorder, message).await;
        }
    }
}

/// A handler that lets `?` report everything responds with 500 to a mistake of its own.
#[tokio::test]
async fn a_mistake_in_a_handler_is_500_and_names_the_fix() {
    async fn handler(limiter: Limiter) -> Result<String, Denial> {
        let decision: Decision = limiter.check_all(after_a_charge(WRONG[0].0)).await?;
        decision.clone().into_result()?;
        Ok(format!("{:?}", decision.available()))
    }
    let limiter = Limiter::new(MemoryStore::new());
    let app = Router::new().route("/", get(move || handler(limiter)));
    let reply = http::get(&app, "/").await;
    assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (500, None));
    says(reply.json()["detail"].as_str().unwrap(), "rename one");
}
