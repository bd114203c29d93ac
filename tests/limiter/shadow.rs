//! Shadow policies without HTTP: failures, waiting, shards, the local fallback.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{
    Check, Error, ErrorKind, FailurePolicy, Limiter, ManualClock, MemoryStore, clock::TokioClock, decision::Source,
    observe::Tracing,
};
use tracing::Level;

use crate::support::{DownStore, FlakyStore, PendingStore, SilentStore, log::Log, per_minute, recorder::Recorder};

const KINDS: [ErrorKind; 5] = [
    ErrorKind::BadKey,
    ErrorKind::Deadline,
    ErrorKind::StoreMisconfigured,
    ErrorKind::Overloaded,
    ErrorKind::Unavailable,
];

fn memory() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    (MemoryStore::new().with_clock(clock.clone()), clock)
}

#[tokio::test]
async fn law_13_a_check_under_shadow_policies_alone_passes_whatever_fails_and_the_failure_is_reported() {
    let (recorder, store) = (Recorder::default(), FlakyStore::default());
    let limiter = Limiter::new(store.clone()).with_observer(recorder.clone());
    let (one, two) = (per_minute("one", 1).with_shadow(true), per_minute("two", 1).with_shadow(true));
    for kind in KINDS {
        store.fail(Some(Error::new(kind, "the test made the store fail")));
        let check = || Check::new("k", &one, 5).and("k", &two, 1);
        for decision in [limiter.check_all(check()).await, limiter.try_check_all(check())] {
            let decision = FailurePolicy::Closed.resolve(decision);
            assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Open), "{kind:?}");
            assert!(!decision.would_deny() && decision.policies().is_empty(), "{kind:?}");
        }
        let events = recorder.take();
        assert_eq!(events.failures, vec![(kind, vec!["one".to_owned(), "two".to_owned()]); 2]);
        assert!(events.decisions.iter().all(|decision| decision.outcome == "open"));

        // An enforced policy in the check leaves the error to the caller, as without the shadow policy.
        let mixed = Check::new("k", &one, 1).and("k", &per_minute("enforced", 9), 1);
        assert_eq!(limiter.check_all(mixed).await.unwrap_err().kind(), kind);
        recorder.take();
    }
    // A peek refuses nothing either, but has nothing to report.
    assert!(limiter.peek("k", &one).await.is_err());
}

#[tokio::test]
async fn law_13_a_limiter_reports_by_itself_that_shadow_policies_count_nothing() {
    let shadow = per_minute("p", 1).with_shadow(true);
    for observed in [false, true] {
        let (log, _guard) = Log::start(Level::WARN);
        let limiter = Limiter::new(DownStore);
        let limiter = if observed { limiter.with_observer(Tracing::new()) } else { limiter };
        assert!(limiter.check("k", &shadow, 1).await.unwrap().is_allowed());
        let lines = log.take();
        let [line] = &lines[..] else { panic!("{lines:#?}") };
        assert!(line.contains("Limits are not enforced: "), "{line}");
        assert!(line.contains("Requests pass, because only shadow policies apply to them."), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn law_8_a_silent_store_delays_a_shadow_check_until_the_deadline_and_refuses_nothing() {
    let limiter = Limiter::new(SilentStore);
    let started = Instant::now();
    let decision = limiter.check("k", &per_minute("p", 1).with_shadow(true), 1).await.unwrap();
    assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Open));
    assert_eq!(started.elapsed(), Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_caller_never_waits_for_units_of_a_shadow_policy() {
    let limiter = Limiter::new(PendingStore(MemoryStore::new().with_clock(TokioClock::new())));
    let shadow = per_minute("p", 1).with_shadow(true);
    let started = Instant::now();
    for would_deny in [false, true, true] {
        let decision = limiter.acquire("k", &shadow, 1).within(Duration::from_secs(600)).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.would_deny()), (true, would_deny));
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    let enforced = shadow.with_shadow(false);
    assert!(limiter.acquire("k", &enforced, 1).within(Duration::from_secs(600)).await.unwrap().is_allowed());
    assert!(started.elapsed() >= Duration::from_secs(60), "the unit that the shadow policy has counted");
}

#[tokio::test]
async fn a_shadow_policy_with_shards_is_counted_in_all_shards() {
    let (store, _) = memory();
    let limiter = Limiter::new(store);
    let shadow = per_minute("p", 40).with_shards(4).with_shadow(true);
    let mut would_deny = 0;
    for _ in 0..200 {
        let decision = limiter.check("k", &shadow, 1).await.unwrap();
        assert!(decision.is_allowed());
        would_deny += u64::from(decision.would_deny());
    }
    assert!((160..=165).contains(&would_deny), "40 of 200 fit: {would_deny}");
    // A second attempt of an enforced policy beside it changes nothing for the shadow policy's caller.
    let enforced = per_minute("enforced", 8).with_shards(2);
    let mut allowed = 0;
    for _ in 0..30 {
        let check = Check::new("k", &enforced, 1).and("k", &shadow, 1);
        allowed += u64::from(limiter.check_all(check).await.unwrap().is_allowed());
    }
    assert_eq!(allowed, 8);
}

#[tokio::test]
async fn law_14_the_local_fallback_enforces_enforced_policies_beside_shadow_policies() {
    let store = FlakyStore::default();
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory().0, 1);
    let (enforced, shadow) = (per_minute("enforced", 6), per_minute("shadow", 2).with_shadow(true));
    let check = || Check::new("k", &enforced, 1).and("k", &shadow, 1);
    for would_deny in [false, false, true] {
        let decision = limiter.check_all(check()).fail_local().await.unwrap();
        assert_eq!((decision.is_allowed(), decision.would_deny()), (true, would_deny));
    }
    // The mirror has counted what was charged: three units, and two under the shadow policy.
    store.fail(Some(Error::new(ErrorKind::Unavailable, "the test made the store fail")));
    for allowed in [true, true, true, false] {
        let decision = limiter.check_all(check()).fail_local().await.unwrap();
        assert_eq!((decision.is_allowed(), decision.would_deny(), decision.source()), (allowed, true, Source::Local));
    }
    let alone = limiter.check("k", &shadow, 1).fail_local().await.unwrap();
    assert_eq!((alone.is_allowed(), alone.would_deny(), alone.source()), (true, true, Source::Local));
    // The debts are what the fallback has admitted: three units of the enforced policy, and none of the shadow policy.
    store.fail(None);
    assert_eq!(limiter.check("other", &enforced, 1).await.unwrap().available(), Some(5));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(limiter.peek("k", &enforced).await.unwrap().available(), Some(0));
    assert_eq!(limiter.peek("k", &shadow.with_shadow(false)).await.unwrap().available(), Some(0));
}

#[tokio::test]
async fn debts_under_a_shadow_policy_are_charged_as_far_as_they_fit() {
    let (store, clock) = (FlakyStore::default(), ManualClock::default());
    let limiter = Limiter::new(store.clone()).with_local_fallback(MemoryStore::new().with_clock(clock), 1);
    let shadow = per_minute("shadow", 10).with_shadow(true);
    assert!(limiter.check("k", &shadow, 8).await.unwrap().is_allowed());
    store.fail(Some(Error::new(ErrorKind::Unavailable, "the test made the store fail")));
    assert!(!limiter.check("k", &shadow, 2).fail_local().await.unwrap().would_deny());
    store.fail(None);
    let _ = limiter.check("other", &shadow, 1).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(limiter.peek("k", &shadow.with_shadow(false)).await.unwrap().available(), Some(0));
}
