//! A policy with a mistake: whatever uses it reports it, charges nothing and lets nothing pass.

use std::time::Duration;

use axum::{Router, routing::get};
use http::request::Parts;
use tollgate::{
    Algorithm, Check, ErrorKind, GlobalKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer, Route, ThrottleLayer,
    plans::Plans,
    policy::{HoldSettings, Policies, PolicySource},
};

use super::mistakes::is_refused;
use crate::support::app::{assert_mistaken, never_run};
use crate::support::{DownStore, per_minute, says};
use crate::support::{http::get as fetch, recorder::Recorder};

const SECOND: Duration = Duration::from_secs(1);

/// Setters of a policy, and what is wrong with them.
type Wrong = (fn(Policy) -> Policy, &'static str);

/// Setters of a policy that are wrong, and their message: by themselves, or because they do not fit each other.
const WRONG: [Wrong; 6] = [
    (|policy| policy.with_unit("a b"), r#"unit "a b" is not usable in a header; "#),
    (|policy| policy.with_shards(0), "0 shards are out of range; "),
    (|policy| policy.with_burst(5), "only a token bucket has a burst; "),
    (
        |policy| policy.with_algorithm(Algorithm::TokenBucket).with_burst(3).with_shards(4),
        "4 shards are out of range; ",
    ),
    (|policy| policy.with_shards(2).ban_after(1, SECOND), "each shard would count denials by itself, "),
    (
        |policy| policy.with_holds(HoldSettings::new()).with_denials_counted(true),
        "`with_denials_counted` and holds exclude ",
    ),
];

fn limiters() -> [Limiter; 2] {
    [Limiter::new(MemoryStore::new()), Limiter::new(DownStore)]
        .map(|limiter| limiter.with_local_fallback(MemoryStore::new(), 1).without_notices())
}

#[tokio::test]
async fn every_call_with_a_policy_that_has_a_mistake_returns_it() {
    for limiter in limiters() {
        for (wrong, message) in WRONG {
            for shadow in [false, true] {
                let policy = &wrong(per_minute("p", 10)).with_shadow(shadow);
                let calls = [
                    limiter.check("k", policy, 1).await.map(drop),
                    limiter.check("k", policy, 1).fail_local().await.map(drop),
                    limiter.check("k", policy, 0).await.map(drop),
                    limiter.try_check("k", policy, 1).map(drop),
                    limiter.peek("k", policy).await.map(drop),
                    limiter.hold("k", policy, 1).await.map(drop),
                    limiter.hold_all(Check::hold("k", policy, 1)).await.map(drop),
                    limiter.acquire("k", policy, 1).within(SECOND).await.map(drop),
                    limiter.acquire("k", &per_minute("q", 5), 1).and(policy, 1).within(SECOND).await.map(drop),
                    limiter.reset("k", policy).await.map(drop),
                    limiter.ban("k", policy, SECOND).await,
                    limiter.unban("k", policy).await.map(drop),
                    limiter.record("k", policy, 1).await,
                    limiter.credit("k", policy, 1).await.map(drop),
                ];
                for (number, result) in calls.into_iter().enumerate() {
                    is_refused(&result.expect_err(&format!("call {number} has passed: {message}")), message);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_check_has_the_mistake_of_each_of_its_policies_and_charges_none() {
    let limiter = Limiter::new(MemoryStore::new());
    for (wrong, message) in WRONG {
        let (right, wrong) = (per_minute("right", 10), wrong(per_minute("p", 10)));
        let held = per_minute("held", 10).with_holds(HoldSettings::new());
        for check in [
            Check::new("k", &wrong, 1).and("k", &right, 1),
            Check::new("k", &right, 1).and("k", &wrong, 1),
            Check::hold("k", &wrong, 1).and("k", &right, 1),
            Check::hold("k", &held, 1).and("k", &wrong, 1),
            Check::new("k", &right, 1).and_hold("k", &wrong, 1),
        ] {
            is_refused(&limiter.hold_all(check).await.unwrap_err(), message);
        }
        for policy in [&right, &held] {
            assert_eq!(limiter.peek("k", policy).await.unwrap().available(), Some(10), "{message}");
        }
    }
}

/// An application's own source, which says nothing of the mistakes of its policies.
struct Fixed([Policy; 1]);

impl PolicySource for Fixed {
    fn policies(&self, _: &Parts, _: &Key) -> Policies {
        self.0.as_slice().into()
    }

    fn fixed(&self) -> Option<&[Policy]> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_layer_with_a_policy_that_has_a_mistake_lets_no_request_pass() {
    for limiter in limiters() {
        for (wrong, message) in WRONG {
            let (right, wrong) = (|| per_minute("q", 10), move || wrong(per_minute("p", 10)));
            let recorder = Recorder::default();
            let limiter = limiter.clone().with_observer(recorder.clone());
            let layer = |policies: Vec<Policy>| RateLimitLayer::new(limiter.clone(), policies, GlobalKey);
            for layer in [
                layer(vec![right(), wrong()]),
                layer(vec![wrong().with_shadow(true)]),
                layer(vec![right()]).with_policies(Fixed([wrong()])),
                layer(vec![right()]).and(wrong(), GlobalKey),
                layer(vec![right()]).route("/other", Route::new().policies(wrong())),
            ] {
                for layer in [layer.clone().fail_open(), layer.clone().fail_closed(), layer.fail_local()] {
                    assert_mistaken(layer, &recorder, message).await;
                }
            }
        }
    }
}

/// Such a layer cannot be judged before it has a request.
#[tokio::test]
async fn a_closure_that_chooses_a_policy_with_a_mistake_lets_no_request_pass() {
    for limiter in limiters() {
        for (wrong, message) in WRONG {
            for shadow in [false, true] {
                let recorder = Recorder::default();
                let limiter = limiter.clone().with_observer(recorder.clone());
                let chosen =
                    move |_: &Parts, _: &Key| [per_minute("q", 10), wrong(per_minute("p", 10)).with_shadow(shadow)];
                let layer = RateLimitLayer::new(limiter, chosen, GlobalKey).fail_open();
                let app = Router::new().route("/", get(never_run)).layer(layer);
                assert_eq!(fetch(&app, "/").await.status, 500, "{message}");
                let seen = recorder.take();
                assert_eq!(seen.refusals, ["misconfigured"]);
                says(&seen.debug, message);
                assert!(seen.decisions.is_empty() && seen.failures.is_empty(), "the store was asked");
            }
        }
    }
}

#[test]
fn a_client_and_plans_report_the_mistake_of_a_policy() {
    for (wrong, message) in WRONG {
        let limiter = Limiter::new(MemoryStore::new());
        let (right, wrong) = (per_minute("q", 10), wrong(per_minute("p", 10)));
        let throttle = ThrottleLayer::new(limiter.clone(), wrong.clone(), "upstream").fail_open();
        says(throttle.with_cost(0).validated().unwrap_err(), message);
        let throttle = ThrottleLayer::new(limiter, right.clone(), "upstream").and_limit(wrong.clone(), 1);
        says(throttle.validated().unwrap_err(), message);

        let source = |_: Key| async { Ok::<Option<Policy>, &str>(None) };
        says(Plans::new(source, wrong.clone()).unwrap_err(), message);
        let plans = Plans::new(source, right).unwrap();
        says(plans.insert("k", wrong).unwrap_err(), message);
        assert_eq!(plans.get("k")[0].name(), "q");
    }
}

/// A plan that cannot be used is reported, and the default plan applies.
#[tokio::test]
async fn a_plan_with_a_mistake_never_applies() {
    let recorder = Recorder::default();
    let wrong = per_minute("wrong", 1_000).with_unit("a b");
    let source = move |_: Key| {
        let wrong = wrong.clone();
        async move { Ok::<_, &str>(wrong) }
    };
    let plans = Plans::new(source, per_minute("default", 1)).unwrap();
    let limiter = Limiter::new(MemoryStore::new()).without_notices().with_observer(recorder.clone());
    drop(RateLimitLayer::new(limiter.clone(), plans.clone(), GlobalKey).validated().unwrap());
    for allowed in [true, false] {
        let decision = limiter.check_all(plans.check("k", 1)).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.policies()[0].policy.name()), (allowed, "default"));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    says(&recorder.take().debug, r#"unit \"a b\" is not usable in a header"#);
    let error = limiter.check("k", &per_minute("p", 1).with_unit("a b"), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCall);
}

#[test]
fn a_policy_reports_the_first_of_its_mistakes_until_a_later_setting_mends_it() {
    let policy = per_minute("p", 10).with_burst(5).with_shards(0);
    says(policy.clone().validated().unwrap_err(), "only a token bucket has a burst; ");
    let mended = policy.with_algorithm(Algorithm::TokenBucket);
    says(mended.validated().unwrap_err(), "0 shards are out of range; ");
}
