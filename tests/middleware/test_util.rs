//! The clocks and stores with which users test their services.

use std::time::Duration;

use tollgate::{
    ErrorKind, FailurePolicy, GlobalKey, Limiter, ManualClock, MemoryStore, RateLimitLayer, clock::TokioClock,
    store::FailingStore,
};

use crate::support::app::{app, get_passes, per_minute};
use crate::support::http::get;

#[tokio::test(start_paused = true)]
async fn a_limit_by_tokios_clock_moves_with_paused_time() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new()));
    let app = app(RateLimitLayer::new(limiter, per_minute(1), GlobalKey));
    assert!(get_passes(&app, "/").await);
    let denied = get(&app, "/").await;
    assert_eq!(denied.header("retry-after").as_deref(), Some("60"));
    tokio::time::sleep(Duration::from_millis(59_999)).await;
    assert!(!get_passes(&app, "/").await);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(get_passes(&app, "/").await);
}

#[tokio::test]
async fn a_failing_store_and_its_clones_fail_with_the_given_kind() {
    let store = FailingStore::new();
    let limit = RateLimitLayer::new(Limiter::new(store.clone()), per_minute(1), GlobalKey);
    let (open, closed) = (app(limit.clone()), app(limit.fail_closed()));
    assert_eq!(get(&open, "/").await.header("ratelimit"), None);
    assert_eq!(get(&closed, "/").await.status, 503);

    store.recover();
    assert_eq!(get(&closed, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60"#));
    store.fail(ErrorKind::Overloaded);
    assert_eq!(get(&open, "/").await.status, 503, "an overload is refused under every failure policy");
    store.fail(ErrorKind::Deadline);
    assert_eq!(get(&open, "/").await.status, 200);
    store.recover();
    assert_eq!(get(&open, "/").await.status, 429, "counts from before the failure remain");
}

#[tokio::test]
async fn a_failing_store_also_fails_resets_and_uses_the_given_clock() {
    let clock = ManualClock::default();
    let store = FailingStore::over(MemoryStore::new().with_clock(clock.clone()));
    let limiter = Limiter::new(store.clone());
    let policy = per_minute(1);
    for kind in [ErrorKind::Unavailable, ErrorKind::StoreMisconfigured] {
        store.fail(kind);
        assert_eq!(limiter.reset("key", &policy).await.unwrap_err().kind(), kind);
        assert_eq!(limiter.check("key", &policy, 1).await.unwrap_err().kind(), kind);
    }
    store.recover();
    assert!(limiter.check("key", &policy, 1).await.unwrap().is_allowed(), "failed checks have charged nothing");
    assert!(!FailurePolicy::Open.resolve(limiter.check("key", &policy, 1).await).is_allowed());
    clock.advance(Duration::from_secs(60));
    assert!(limiter.check("key", &policy, 1).await.unwrap().is_allowed());
}
