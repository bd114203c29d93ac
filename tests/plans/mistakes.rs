//! Mistakes in the settings of plans: the first one is reported, and no request is charged under such plans.

use std::time::Duration;

use tollgate::{
    Decision, ErrorKind, FailurePolicy, GlobalKey, Limiter, MemoryStore, RateLimitLayer, Route, plans::Plans,
    policy::PolicySource,
};

use super::{Answer, Source};
use crate::support::app::{assert_mistaken, limiter};
use crate::support::recorder::Recorder;
use crate::support::{per_minute, says};

const ZERO: Duration = Duration::ZERO;

/// A setting that is wrong, and its message.
type Wrong = (fn(Plans) -> Plans, &'static str);

/// Settings of plans that are wrong, and their names.
const WRONG: [Wrong; 5] = [
    (|plans| plans.with_ttl(ZERO), "`Plans::with_ttl` with 0 would leave every key with the default plan; "),
    (|plans| plans.with_failure_ttl(ZERO), "`Plans::with_failure_ttl` with 0 "),
    (|plans| plans.with_timeout(ZERO), "`Plans::with_timeout` with 0 "),
    (|plans| plans.with_max_lookups(0), "`Plans::with_max_lookups` with 0 "),
    (|plans| plans.with_capacity(0), "`Plans::with_capacity` with 0 "),
];

fn plans() -> Plans {
    Source::new(Answer::NoPlan).plans()
}

#[test]
fn plans_report_the_first_of_their_mistakes() {
    for (first, message) in WRONG {
        for (second, _) in WRONG {
            says(second(first(plans())).validate().unwrap_err(), message);
        }
        let corrected = first(plans()).with_ttl(Duration::from_secs(1)).with_max_lookups(1);
        says(corrected.validate().unwrap_err(), message);
    }
    assert!(plans().with_ttl(Duration::from_secs(1)).validate().is_ok());
}

#[tokio::test]
async fn a_layer_of_plans_with_a_mistake_lets_no_request_pass() {
    for (wrong, message) in WRONG {
        let recorder = Recorder::default();
        let limiter = Limiter::new(MemoryStore::new()).with_observer(recorder.clone()).without_notices();
        let by_layer = RateLimitLayer::new(limiter.clone(), wrong(plans()), GlobalKey);
        let by_key = RateLimitLayer::new(limiter.clone(), per_minute("p", 9), GlobalKey).and(wrong(plans()), GlobalKey);
        let by_route = RateLimitLayer::new(limiter, per_minute("p", 9), GlobalKey);
        let by_route = by_route.route("/other", Route::new().policies(wrong(plans())));
        for layer in [by_layer, by_key, by_route] {
            assert_mistaken(layer, &recorder, message).await;
        }
    }
}

#[tokio::test]
async fn a_check_of_plans_with_a_mistake_is_its_error() {
    for (wrong, message) in WRONG {
        let plans = wrong(plans());
        says(PolicySource::validate(&plans).unwrap_err(), message);
        let error = limiter().check_all(plans.check("k", 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
        says(&error, message);
        assert!(!FailurePolicy::Open.resolve::<Decision>(Err(error)).is_allowed());
    }
}
