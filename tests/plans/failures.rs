//! Sources that are slow, fail, panic, hang or return nonsense: no request waits, and the default plan holds.

use axum::{Router, routing::get};
use tokio::time::{Instant, sleep};
use tollgate::{Check, GlobalKey, Policy, RateLimitLayer, Route, plans::Plans};

use super::{Answer, DEFAULT, Events, SECOND, Source, limit, observed, plan, settle};
use crate::support::app::{app, get_passes, limiter};
use crate::support::{per_minute, says};

/// A router whose requests share one key and the plan of that key.
fn planned(plans: Plans) -> Router {
    app(RateLimitLayer::new(limiter(), plans, GlobalKey))
}

/// A source that does not answer with a plan, and the outcome of its look-ups.
fn bad_sources() -> Vec<(Answer, &'static str)> {
    let twice = vec![per_minute("p", 100), per_minute("P", 200)];
    let too_many = (0..65).map(|number| per_minute(&format!("p{number}"), 100)).collect();
    vec![
        (Answer::Error, "failed"),
        (Answer::Panic, "panicked"),
        (Answer::Never, "timed_out"),
        (Answer::Policies(Vec::new()), "invalid"),
        (Answer::Policies(twice), "invalid"),
        (Answer::Policies(too_many), "invalid"),
    ]
}

#[tokio::test(start_paused = true)]
async fn law_14_the_default_plan_holds_without_waiting_whatever_the_source_does() {
    for (answer, outcome) in bad_sources() {
        let (source, events) = (Source::new(answer), Events::default());
        let limiter = limiter().without_notices().with_observer(events.clone());
        let app = app(RateLimitLayer::new(limiter, source.plans(), GlobalKey));
        let mut admitted = 0;
        for _ in 0..20 {
            let start = Instant::now();
            admitted += u64::from(get_passes(&app, "/").await);
            assert_eq!(start.elapsed().as_nanos(), 0, "{outcome}: the response needs no time");
            settle().await;
        }
        assert_eq!(admitted, DEFAULT, "{outcome}");
        // Long enough for the timeout of 5 s, and within the TTL of 60 s.
        sleep(SECOND * 10).await;
        get_passes(&app, "/").await;
        assert_eq!(events.lookups(), [outcome]);
        assert_eq!(source.asked(), 1, "{outcome}: one look-up for the key and TTL");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_source_delays_no_request_and_its_plan_holds_when_it_has_answered() {
    let source = Source::new(Answer::After(SECOND * 2, 100));
    let app = planned(source.plans());
    let start = Instant::now();
    for request in 0..10 {
        assert_eq!(get_passes(&app, "/").await, request < DEFAULT);
    }
    assert_eq!(start.elapsed().as_nanos(), 0);
    sleep(SECOND * 3).await;
    // The plans share a name, so the units that were spent before count.
    let mut admitted = DEFAULT;
    while get_passes(&app, "/").await {
        admitted += 1;
    }
    assert_eq!(admitted, 100);
    assert_eq!(source.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_up_is_repeated_once_in_each_ttl() {
    for (answer, outcome) in bad_sources() {
        let source = Source::new(answer);
        let plans = source.plans().with_ttl(SECOND * 30);
        for second in 0..300 {
            assert_eq!(limit(&plans, "k"), DEFAULT);
            sleep(SECOND).await;
            let ttls = second / 30 + 1;
            assert!(source.asked() <= ttls, "{outcome}: {} look-ups in {ttls} TTLs", source.asked());
        }
        assert!(source.asked() >= 8, "{outcome}: {} look-ups", source.asked());
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_comes_back_after_the_failure_ttl() {
    let source = Source::new(Answer::Error);
    let plans = source.plans().with_failure_ttl(SECOND * 10);
    assert_eq!(limit(&plans, "k"), DEFAULT);
    settle().await;
    source.answers(plan(50));
    sleep(SECOND * 9).await;
    assert_eq!((limit(&plans, "k"), source.asked()), (DEFAULT, 1));
    sleep(SECOND).await;
    limit(&plans, "k");
    settle().await;
    assert_eq!((limit(&plans, "k"), source.asked()), (50, 2));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_is_dropped_after_its_timeout_and_frees_its_place() {
    let source = Source::new(Answer::Never);
    let plans = source.plans().with_max_lookups(1).with_timeout(SECOND * 2);
    limit(&plans, "hangs");
    sleep(SECOND * 3).await;
    source.answers(plan(50));
    limit(&plans, "other");
    settle().await;
    assert_eq!(limit(&plans, "other"), 50);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_plan_of_its_own_is_not_a_failure() {
    let (source, events) = (Source::new(Answer::NoPlan), Events::default());
    let plans = observed(source.plans(), events.clone());
    limit(&plans, "k");
    settle().await;
    for _ in 0..10 {
        assert_eq!(limit(&plans, "k"), DEFAULT);
    }
    assert_eq!((events.lookups(), events.fallbacks()), (vec!["no_plan"], vec![("unanswered", false)]));
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_limit_of_the_plan_is_refused_and_not_admitted() {
    let source = Source::new(plan(5));
    let plans = Plans::new(source, per_minute("p", 100)).unwrap();
    let limit = RateLimitLayer::new(limiter(), per_minute("other", 9), GlobalKey)
        .route("/search", Route::new().policies(plans).cost(10));
    let app = Router::new().route("/search", get(|| async {})).layer(limit);
    assert!(get_passes(&app, "/search").await, "the default plan admits it");
    settle().await;
    assert_eq!(crate::support::http::get(&app, "/search").await.status, 400);
}

#[test]
fn default_plans_and_settings_that_cannot_work_are_errors() {
    let source = || Source::new(Answer::NoPlan);
    let none: [Policy; 0] = [];
    says(Plans::new(source(), none).unwrap_err(), "no policy, so nothing would be limited; ");
    let twice = [per_minute("p", 1), per_minute("p", 2)];
    let error = Plans::new(source(), twice.clone()).unwrap_err();
    says(&error, r#"two policies of one check are called "p" "#);
    assert_eq!(error.policy_name(), Some("p"));
    let several = |number| (0..number).map(|n| per_minute(&format!("p{n}"), 1)).collect::<Vec<_>>();
    assert!(Plans::new(source(), several(Check::MAX_CHARGES)).is_ok());
    says(Plans::new(source(), several(Check::MAX_CHARGES + 1)).unwrap_err(), "at most 64 charges");

    let plans = Plans::new(source(), per_minute("p", 1)).unwrap();
    assert!(plans.insert("k", twice).is_err());
}
