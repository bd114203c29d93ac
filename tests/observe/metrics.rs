//! The metrics of the observer [`Metrics`], as a Prometheus scrape shows them.

use std::time::Duration;

use axum::{Router, routing::get};
use metrics::set_default_local_recorder;
use tollgate::{
    Check, FailurePolicy, GlobalKey, HeaderKey, Limiter, ManualClock, MemoryStore, PeerIp, Policy, RateLimitLayer,
    observe::Metrics, policy::HoldSettings,
};

use super::fill_a_store;
use crate::support::breaking::BreakingStore;
use crate::support::http::{Connection, get as fetch, serve};
use crate::support::scrape::{assert_shows, recorder};
use crate::support::{DownStore, SilentStore, per_minute};

#[tokio::test]
async fn decisions_are_counted_by_policy_and_outcome_and_timed() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let store = MemoryStore::new().with_clock(ManualClock::default());
    let limiter = Limiter::new(store).with_observer(Metrics::new());
    let (narrow, wide) = (per_minute("narrow", 2), per_minute("wide", 9));
    for _ in 0..5 {
        let _ = limiter.check_all(Check::new("k", &narrow, 1).and("k", &wide, 1)).await.unwrap();
    }
    assert_shows(
        &handle,
        &[
            "# HELP tollgate_decisions_total Decisions, by policy and outcome.",
            "# TYPE tollgate_decisions_total counter",
            r#"tollgate_decisions_total{policy="narrow",outcome="allowed"} 2"#,
            r#"tollgate_decisions_total{policy="wide",outcome="allowed"} 2"#,
            r#"tollgate_decisions_total{policy="narrow",outcome="denied"} 3"#,
            "# TYPE tollgate_check_duration_seconds histogram",
            r#"tollgate_check_duration_seconds_count{outcome="allowed"} 2"#,
            r#"tollgate_check_duration_seconds_count{outcome="denied"} 3"#,
            r#"tollgate_breaker_state{state="closed"} 1"#,
            r#"tollgate_breaker_state{state="open"} 0"#,
        ],
    );
    assert!(!handle.render().contains(r#"policy="wide",outcome="denied""#));
    assert!(!handle.render().contains("tollgate_fallback_admits_total{"), "each check has a verdict");
}

#[tokio::test]
async fn failures_and_the_decisions_of_the_failure_policy_are_counted() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let limiter = Limiter::new(DownStore).with_observer(Metrics::new());
    let layer = RateLimitLayer::new(limiter, per_minute("p", 1), GlobalKey);
    for (failure, times) in [(FailurePolicy::Open, 3), (FailurePolicy::Closed, 2)] {
        let layer = layer.clone();
        let layer = if failure == FailurePolicy::Open { layer.fail_open() } else { layer.fail_closed() };
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        for _ in 0..times {
            fetch(&app, "/").await;
        }
    }
    assert_shows(
        &handle,
        &[
            r#"tollgate_store_errors_total{kind="unavailable"} 5"#,
            r#"tollgate_decisions_total{policy="p",outcome="open"} 3"#,
            r#"tollgate_decisions_total{policy="p",outcome="closed"} 2"#,
            r#"tollgate_fallback_admits_total{policy="p",outcome="open"} 3"#,
            r#"tollgate_check_duration_seconds_count{outcome="error"} 5"#,
        ],
    );
    let scrape = handle.render();
    assert!(!scrape.contains("SECRET-STORE-TEXT"));
    // A request that is refused is not admitted.
    assert_eq!(scrape.lines().filter(|line| line.starts_with("tollgate_fallback_admits_total{")).count(), 1);
}

/// The share of the shadow policy is full at the second check.
#[tokio::test]
async fn a_request_that_its_share_admits_counts_as_local_also_under_a_shadow_policy_that_would_deny_it() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let limiter = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 1).with_observer(Metrics::new());
    let (enforced, shadow) = (per_minute("enforced", 9), per_minute("shadow", 1).with_shadow(true));
    for _ in 0..2 {
        let check = Check::new("k", &enforced, 1).and("k", &shadow, 1);
        assert!(limiter.check_all(check).fail_local().await.unwrap().is_allowed());
    }
    assert_shows(
        &handle,
        &[
            r#"tollgate_decisions_total{policy="shadow",outcome="would_deny"} 1"#,
            r#"tollgate_fallback_admits_total{policy="enforced",outcome="local"} 2"#,
            r#"tollgate_fallback_admits_total{policy="shadow",outcome="local"} 2"#,
        ],
    );
    let scrape = handle.render();
    assert_eq!(scrape.lines().filter(|line| line.starts_with("tollgate_fallback_admits_total{")).count(), 2);
}

#[tokio::test]
async fn the_gauge_of_the_current_breaker_state_is_1() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let store = BreakingStore::open(Metrics::new()).await;
    assert_shows(
        &handle,
        &[
            r#"tollgate_breaker_state{state="closed"} 0"#,
            r#"tollgate_breaker_state{state="open"} 1"#,
            r#"tollgate_breaker_state{state="probing"} 0"#,
        ],
    );
    store.close().await;
    assert_shows(
        &handle,
        &[r#"tollgate_breaker_state{state="closed"} 1"#, r#"tollgate_breaker_state{state="open"} 0"#],
    );
}

#[tokio::test]
async fn the_lines_in_the_docs_are_in_a_scrape() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let store = MemoryStore::new().with_clock(ManualClock::default());
    let limiter = Limiter::new(store).with_observer(Metrics::new());
    let layer = RateLimitLayer::new(limiter, Policy::per_minute("per-client", 60).unwrap(), PeerIp::new());
    let address = serve(Router::new().route("/watch", get(|| async {})).layer(layer)).await;
    let mut connection = Connection::open(address).await;
    for _ in 0..61 {
        connection.get("/watch").await;
    }
    let page = include_str!("../../docs/operations.md");
    let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("tollgate_decisions_total{")).collect();
    assert_eq!(shown.len(), 2);
    assert_shows(&handle, &shown);
}

#[tokio::test(start_paused = true)]
async fn refusals_abandoned_checks_resets_and_warnings_are_counted() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Metrics::new());
    let key = HeaderKey::new("x-api-key").unwrap();
    let layer = RateLimitLayer::new(limiter.clone(), per_minute("p", 1), key);
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    for _ in 0..3 {
        assert_eq!(fetch(&app, "/").await.status, 400);
    }
    limiter.reset("k", &per_minute("p", 1)).await.unwrap();
    let silent = Limiter::new(SilentStore).with_observer(Metrics::new());
    let check = silent.check("k", &per_minute("p", 1), 1);
    tokio::time::timeout(Duration::from_millis(1), check).await.unwrap_err();
    let broken = Limiter::new(DownStore).with_observer(Metrics::new());
    broken.reset("k", &per_minute("p", 1)).await.unwrap_err();
    fill_a_store(Metrics::new());
    assert_shows(
        &handle,
        &[
            r#"tollgate_refused_requests_total{cause="missing_key"} 3"#,
            r#"tollgate_abandoned_checks_total{policy="p"} 1"#,
            r#"tollgate_resets_total{policy="p",outcome="ok"} 1"#,
            r#"tollgate_resets_total{policy="p",outcome="error"} 1"#,
            r#"tollgate_warnings_total{warning="store_full"} 1"#,
        ],
    );
}

#[tokio::test]
async fn ends_of_holds_are_counted() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Metrics::new());
    let policy = per_minute("p", 10).with_holds(HoldSettings::new());
    let hold = async || limiter.hold("k", &policy, 1).await.unwrap().into_result().unwrap();
    hold().await.settle(1).await.unwrap();
    hold().await.release().await.unwrap();
    drop((hold().await, hold().await));
    assert_shows(
        &handle,
        &[
            r#"tollgate_holds_ended_total{policy="p",end="settled"} 1"#,
            r#"tollgate_holds_ended_total{policy="p",end="released"} 1"#,
            r#"tollgate_holds_ended_total{policy="p",end="dropped"} 2"#,
        ],
    );
}

#[tokio::test]
async fn named_limiters_have_separate_series() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let metrics = ["requests", "uploads"].map(Metrics::for_limiter);
    let _ = BreakingStore::open(metrics[1].clone()).await;
    for (metrics, times) in metrics.into_iter().zip([1, 2]) {
        let limiter = Limiter::new(MemoryStore::new()).with_observer(metrics.clone());
        let down = Limiter::new(DownStore).with_observer(metrics);
        for _ in 0..times {
            let _ = limiter.check("k", &per_minute("p", 9), 1).await.unwrap();
            down.check("k", &per_minute("p", 9), 1).await.unwrap_err();
        }
    }
    assert_shows(
        &handle,
        &[
            r#"tollgate_breaker_state{state="open",limiter="requests"} 0"#,
            r#"tollgate_breaker_state{state="closed",limiter="requests"} 1"#,
            r#"tollgate_breaker_state{state="open",limiter="uploads"} 1"#,
            r#"tollgate_breaker_state{state="closed",limiter="uploads"} 0"#,
            r#"tollgate_decisions_total{policy="p",outcome="allowed",limiter="requests"} 1"#,
            r#"tollgate_decisions_total{policy="p",outcome="allowed",limiter="uploads"} 2"#,
            r#"tollgate_store_errors_total{kind="unavailable",limiter="uploads"} 3"#,
        ],
    );
    let scrape = handle.render();
    let without_label = |line: &&str| line.starts_with("tollgate_") && !line.contains("limiter=");
    assert_eq!(scrape.lines().find(without_label), None);
}

#[tokio::test]
async fn gauges_show_the_limit_and_the_window_of_each_policy_as_they_are_now() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Metrics::new());
    let slots = Policy::concurrent("slots", 3).unwrap();
    let _slot = limiter.hold("k", &slots, 1).await.unwrap();
    for limit in [9, 7] {
        let _ = limiter.check("k", &per_minute("p", limit), 1).await.unwrap();
        let shown = format!(r#"tollgate_policy_limit{{policy="p"}} {limit}"#);
        assert_shows(&handle, &[&shown, r#"tollgate_policy_window_seconds{policy="p"} 60"#]);
    }
    assert_shows(&handle, &[r#"tollgate_policy_limit{policy="slots"} 3"#]);
    assert!(!handle.render().contains(r#"tollgate_policy_window_seconds{policy="slots"}"#));
}
