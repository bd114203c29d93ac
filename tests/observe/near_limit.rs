//! Keys near a limit, and shadow policies, as observers see them.

use std::time::Duration;

use metrics::set_default_local_recorder;
use tollgate::observe::{Metrics, Tracing};
use tollgate::{Algorithm, Check, Limiter, ManualClock, MemoryStore, Policy, clock::TokioClock};
use tracing::Level;

use crate::support::scrape::{assert_shows, recorder};
use crate::support::{log::Log, per_minute, recorder::Recorder};

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter, Algorithm::SlidingWindowLog, Algorithm::TokenBucket];

fn observed() -> (Limiter, ManualClock, Recorder) {
    let (clock, recorder) = (ManualClock::default(), Recorder::default());
    let store = MemoryStore::new().with_clock(clock.clone());
    (Limiter::new(store).with_observer(recorder.clone()), clock, recorder)
}

fn near(policy: &str, spent: u64, limit: u64) -> (String, u64, u64) {
    (policy.to_owned(), spent, limit)
}

#[tokio::test]
async fn a_key_is_reported_once_a_window_when_it_reaches_four_fifths_of_the_limit() {
    for algorithm in ALGORITHMS {
        for shadow in [false, true] {
            let (limiter, clock, recorder) = observed();
            let policy = per_minute("p", 10).with_algorithm(algorithm).with_shadow(shadow);
            for key in ["a", "b"] {
                for _ in 0..7 {
                    let _ = limiter.check(key, &policy, 1).await.unwrap();
                }
                assert_eq!(recorder.take().near, [], "{algorithm:?}");
                let _ = limiter.check(key, &policy, 2).await.unwrap();
                assert_eq!(recorder.take().near, [near("p", 9, 10)], "{algorithm:?}");
            }
            // A denial, the last unit, and a peek report nothing more.
            let _ = limiter.check("a", &policy, 2).await.unwrap();
            let _ = limiter.check("a", &policy, 1).await.unwrap();
            let _ = limiter.peek("a", &policy).await.unwrap();
            assert_eq!(recorder.take().near, [], "{algorithm:?}");
            clock.advance(Duration::from_secs(120));
            let _ = limiter.check("a", &policy, 10).await.unwrap();
            assert_eq!(recorder.take().near, [near("p", 10, 10)], "{algorithm:?}: the next window");
        }
    }
}

#[tokio::test]
async fn a_log_that_stays_near_its_limit_is_not_reported_again_within_the_window() {
    let (limiter, clock, recorder) = observed();
    let policy = per_minute("p", 10);
    // Ten units a minute, one every six seconds: each unit that comes back is spent at once.
    for _ in 0..30 {
        let _ = limiter.check("k", &policy, 1).await.unwrap();
        clock.advance(Duration::from_secs(6));
    }
    let reported = recorder.take().near;
    assert!((1..=3).contains(&reported.len()), "at most once in each of three windows: {reported:?}");
    // A clock that is set back does not silence the key.
    clock.set_us(1_000_000);
    limiter.reset("k", &policy).await.unwrap();
    let _ = limiter.check("k", &policy, 9).await.unwrap();
    assert_eq!(recorder.take().near, [near("p", 9, 10)]);
}

#[tokio::test]
async fn a_key_is_reported_again_in_the_next_fixed_window() {
    let (limiter, clock, recorder) = observed();
    let policy = per_minute("p", 10).with_algorithm(Algorithm::FixedWindow);
    // A second before the end of a window, and at its end.
    clock.set_us(1_767_225_600_000_000 + 59_000_000);
    for _ in 0..2 {
        let _ = limiter.check("k", &policy, 9).await.unwrap();
        assert_eq!(recorder.take().near, [near("p", 9, 10)]);
        clock.advance(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn of_two_processes_the_one_whose_request_reaches_the_near_limit_reports_the_key() {
    let store = MemoryStore::new().with_clock(ManualClock::default());
    let policy = per_minute("p", 10);
    for (cost, reported) in [(8, vec![near("p", 8, 10)]), (1, vec![])] {
        let recorder = Recorder::default();
        let limiter = Limiter::new(store.clone()).with_observer(recorder.clone());
        assert!(limiter.check("k", &policy, cost).await.unwrap().is_allowed());
        assert_eq!(recorder.take().near, reported);
    }
}

#[tokio::test]
async fn the_share_is_the_policys_and_may_be_off() {
    let (limiter, _, recorder) = observed();
    let half = per_minute("half", 10).with_near_limit(0.5);
    let full = per_minute("full", 10).with_near_limit(1.0);
    let off = per_minute("off", 10).with_near_limit(None);
    for cost in [4, 1, 5] {
        let check = Check::new("k", &half, cost).and("k", &full, cost).and("k", &off, cost);
        let _ = limiter.check_all(check).await.unwrap();
    }
    assert_eq!(recorder.take().near, [near("half", 5, 10), near("full", 10, 10)]);
    let single = per_minute("single", 1);
    let _ = limiter.check("k", &single, 1).await.unwrap();
    assert_eq!(recorder.take().near, [near("single", 1, 1)]);
    let largest = per_minute("largest", Policy::MAX_LIMIT).with_near_limit(None);
    let _ = limiter.check("k", &largest, Policy::MAX_LIMIT).await.unwrap();
    assert_eq!(recorder.take().near, []);
}

#[tokio::test]
async fn a_bucket_is_near_its_burst_and_clones_of_a_limiter_report_once() {
    let (limiter, _, recorder) = observed();
    let bucket = per_minute("p", 100).with_algorithm(Algorithm::TokenBucket).with_burst(5);
    let _ = limiter.check("k", &bucket, 4).await.unwrap();
    let clone = limiter.clone();
    limiter.reset("k", &bucket).await.unwrap();
    let _ = clone.check("k", &bucket, 4).await.unwrap();
    assert_eq!(recorder.take().near, [near("p", 4, 5)]);
}

#[tokio::test(start_paused = true)]
async fn waiters_that_are_charged_together_bring_a_key_near_its_limit() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new())).with_observer(recorder.clone());
    let policy = per_minute("p", 5);
    for _ in 0..5 {
        assert!(limiter.acquire("k", &policy, 1).within(Duration::from_secs(1)).await.unwrap().is_allowed());
    }
    assert_eq!(recorder.take().near, [near("p", 4, 5)]);
}

#[tokio::test]
async fn law_10_no_report_contains_the_key() {
    let (limiter, _, recorder) = observed();
    let (log, _guard) = Log::start(Level::TRACE);
    let limiter = limiter.with_observer(Tracing::new());
    let policies = [per_minute("p", 1), per_minute("s", 1).with_shadow(true)];
    for _ in 0..2 {
        let check = Check::new("SECRET-KEY", &policies[1], 1).and("SECRET-KEY", &policies[0], 1);
        let _ = limiter.check_all(check).await.unwrap();
    }
    let events = recorder.take();
    assert!(events.debug.contains("NearLimit") && !events.debug.contains("SECRET-KEY"), "{}", events.debug);
    let lines = log.take();
    assert!(lines.iter().any(|line| line.contains("tollgate::near_limit: near the limit")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("would be denied")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("SECRET-KEY")), "{lines:#?}");
}

#[tokio::test]
async fn metrics_count_what_a_shadow_policy_would_deny_and_keys_near_a_limit() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let limiter = observed().0.with_observer(Metrics::new());
    let (tried, wide) = (per_minute("tried", 2).with_shadow(true), per_minute("wide", 4));
    let check = || Check::new("k", &wide, 1).and("k", &tried, 1);
    for _ in 0..5 {
        let _ = limiter.check_all(check()).await.unwrap();
    }
    assert_shows(
        &handle,
        &[
            r#"tollgate_decisions_total{policy="wide",outcome="allowed"} 4"#,
            r#"tollgate_decisions_total{policy="wide",outcome="denied"} 1"#,
            r#"tollgate_decisions_total{policy="tried",outcome="allowed"} 2"#,
            r#"tollgate_decisions_total{policy="tried",outcome="would_deny"} 3"#,
            r#"tollgate_near_limit_total{policy="tried"} 1"#,
            r#"tollgate_near_limit_total{policy="wide"} 1"#,
        ],
    );
}

#[test]
fn policies_of_all_sizes_have_a_near_limit_within_their_capacity() {
    for limit in [1, 2, 3, 5, 1_000_003, Policy::MAX_LIMIT] {
        for share in [1e-12, 0.1, 0.8, 0.999_999, 1.0] {
            let policy = Policy::per_minute("p", limit).unwrap().with_near_limit(share);
            assert!(policy.validated().is_ok(), "{share} of {limit}");
        }
    }
}
