//! Events of decisions, store failures and breaker changes.

use axum::{Router, routing::get};
use tollgate::{
    Check, ErrorKind, FailurePolicy, GlobalKey, Key, Limiter, ManualClock, MemoryStore, RateLimitLayer,
    decision::Source, observe::Fingerprint,
};

use super::recorded;
use crate::support::{
    DownStore, PendingStore, SilentStore, breaking::BreakingStore, http::get as fetch, observed::BreakerChange,
    per_minute, recorder::Recorder,
};

#[tokio::test]
async fn decisions_are_reported_with_policies_costs_and_fingerprints() {
    let (limiter, recorder) = recorded();
    let (narrow, wide) = (per_minute("narrow", 2), per_minute("wide", 100));
    let check = || Check::new("a", &narrow, 2).and("b", &wide, 3);
    let _ = limiter.check_all(check()).await.unwrap();
    let _ = limiter.check_all(check()).await.unwrap();
    let seen = recorder.take();
    let [allowed, denied] = &seen.decisions[..] else { panic!("{:?}", seen.decisions) };
    let charges = |violated| vec![("narrow".to_owned(), 2, violated), ("wide".to_owned(), 3, false)];
    assert_eq!((allowed.outcome, allowed.source), ("allowed", Source::Store));
    assert_eq!(allowed.charges, charges(false));
    assert_eq!((denied.outcome, denied.source), ("denied", Source::Store));
    assert_eq!(denied.charges, charges(true));
    let keys = ["a", "b"].map(|key| Fingerprint::of(&Key::from(key)));
    assert_eq!((&allowed.fingerprints[..], &denied.fingerprints[..]), (&keys[..], &keys[..]));
    assert!(seen.failures.is_empty() && seen.batches.is_empty());
}

#[tokio::test]
async fn of_alternatives_the_one_that_was_charged_is_reported() {
    let (limiter, recorder) = recorded();
    let (included, credits, burst) = (per_minute("included", 1), per_minute("credits", 9), per_minute("burst", 2));
    for _ in 0..3 {
        let check = Check::first_of("k", [&included, &credits], 1).and("b", &burst, 1);
        let _ = limiter.check_all(check).await.unwrap();
    }
    let seen = recorder.take();
    let [first, second, denied] = &seen.decisions[..] else { panic!("{:?}", seen.decisions) };
    let charges = |name: &str| vec![(name.to_owned(), 1, false), ("burst".to_owned(), 1, false)];
    assert_eq!((&first.charges, &second.charges), (&charges("included"), &charges("credits")));
    assert_eq!((denied.charges.len(), &denied.charges[1]), (2, &("burst".to_owned(), 1, true)));
}

#[tokio::test]
async fn decisions_of_a_pending_store_are_reported() {
    let recorder = Recorder::default();
    let store = PendingStore(MemoryStore::new().with_clock(ManualClock::default()));
    let limiter = Limiter::new(store).with_observer(recorder.clone());
    for outcome in ["allowed", "denied"] {
        let _ = limiter.check("k", &per_minute("p", 1), 1).await.unwrap();
        assert_eq!(recorder.outcomes(), [(outcome, Source::Store)]);
    }
}

#[tokio::test]
async fn peeks_costs_of_zero_and_futures_that_were_not_polled_are_not_reported() {
    let (limiter, recorder) = recorded();
    let _ = limiter.peek("k", &per_minute("p", 1)).await.unwrap();
    let _ = limiter.check("k", &per_minute("p", 1), 0).await.unwrap();
    drop(limiter.check("k", &per_minute("p", 1), 1));
    assert_eq!(recorder.outcomes(), []);
    let _ = limiter.check("k", &per_minute("p", 1), 1).await.unwrap();
    recorder.take();
    assert!(!limiter.peek("k", &per_minute("p", 1)).await.unwrap().is_allowed());
    assert_eq!(recorder.outcomes(), [], "a peek at a spent key is not a denial");
}

fn app(limiter: Limiter, failure: FailurePolicy) -> Router {
    let layer = RateLimitLayer::new(limiter, [per_minute("p", 1), per_minute("q", 9)], GlobalKey);
    let layer = if failure == FailurePolicy::Open { layer.fail_open() } else { layer.fail_closed() };
    Router::new().route("/", get(|| async {})).layer(layer)
}

#[tokio::test]
async fn the_middleware_reports_the_decisions_of_the_store() {
    let (limiter, recorder) = recorded();
    let app = app(limiter, FailurePolicy::Open);
    for (status, outcome) in [(200, "allowed"), (429, "denied")] {
        assert_eq!(fetch(&app, "/").await.status, status);
        assert_eq!(recorder.outcomes(), [(outcome, Source::Store)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_failure_is_reported_before_the_decision_of_the_failure_policy() {
    for (failure, status, outcome, source) in
        [(FailurePolicy::Open, 200, "open", Source::Open), (FailurePolicy::Closed, 503, "closed", Source::Closed)]
    {
        let recorder = Recorder::default();
        // The first store fails at once, the second one at the deadline.
        let down = Limiter::new(DownStore).with_observer(recorder.clone());
        let silent = Limiter::new(SilentStore).with_observer(recorder.clone());
        for (limiter, kind) in [(down, ErrorKind::Unavailable), (silent, ErrorKind::Deadline)] {
            assert_eq!(fetch(&app(limiter, failure), "/").await.status, status);
            let seen = recorder.take();
            assert_eq!(seen.failures, [(kind, vec!["p".to_owned(), "q".to_owned()])]);
            let [decision] = &seen.decisions[..] else { panic!("{:?}", seen.decisions) };
            assert_eq!((decision.outcome, decision.source), (outcome, source));
            assert_eq!(decision.charges, [("p".to_owned(), 1, false), ("q".to_owned(), 1, false)]);
        }
    }
}

#[tokio::test]
async fn without_the_middleware_a_failure_is_reported_without_a_decision() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(DownStore).with_observer(recorder.clone());
    limiter.check("k", &per_minute("p", 1), 1).await.unwrap_err();
    let seen = recorder.take();
    assert_eq!(seen.failures, [(ErrorKind::Unavailable, vec!["p".to_owned()])]);
    assert!(seen.decisions.is_empty());
}

#[tokio::test]
async fn a_second_observer_receives_events_beside_the_first_but_not_those_of_earlier_clones() {
    let (before, first) = recorded();
    let second = Recorder::default();
    let limiter = before.clone().with_observer(second.clone());
    let _ = limiter.check("k", &per_minute("p", 9), 1).await.unwrap();
    assert_eq!((first.outcomes().len(), second.outcomes().len()), (1, 1));
    let _ = before.check("k", &per_minute("p", 9), 1).await.unwrap();
    assert_eq!((first.outcomes().len(), second.outcomes().len()), (1, 0));
}

#[tokio::test]
async fn breaker_changes_reach_an_observer() {
    let recorder = Recorder::default();
    let store = BreakingStore::open(recorder.clone()).await;
    let opened = recorder.take().changes;
    assert!(matches!(opened[..], [BreakerChange { from: "closed", to: "open", .. }]), "{opened:?}");
    store.close().await;
    let closed = recorder.take().changes;
    assert_eq!(closed.last().map(|change| (change.from, change.to)), Some(("probing", "closed")), "{closed:?}");
    assert!(closed.windows(2).all(|two| two[0].sequence < two[1].sequence && two[0].to == two[1].from), "{closed:?}");
}
