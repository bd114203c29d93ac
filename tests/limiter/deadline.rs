//! A check of a store that does not answer ends at the deadline and is not sent again.

use std::time::Duration;

use http::StatusCode;
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, ErrorKind, Key, Limiter, Policy};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::support::counting::{
    CountingService, CountingStore, EmptyRequest, LostReplyStore, layer, status, within_10_seconds,
};
use crate::support::{SilentStore, stopwatch::Stopwatch};

const DEFAULT: Duration = Duration::from_millis(50);

/// [`SilentStore`] with the given deadline.
#[derive(Debug)]
struct SilentStoreWithDeadline(Duration);

impl Store for SilentStoreWithDeadline {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        SilentStore.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        SilentStore.reset(key, policy)
    }

    fn deadline(&self) -> Duration {
        self.0
    }
}

#[tokio::test(start_paused = true)]
async fn law_8_a_request_waits_until_the_deadline_and_not_longer() {
    let own = Duration::from_millis(7);
    for (limiter, deadline) in [(Limiter::new(SilentStore), DEFAULT), (Limiter::new(SilentStoreWithDeadline(own)), own)]
    {
        let layer = layer(limiter, 1);
        let mut open = ServiceBuilder::new().layer(layer.clone().fail_open()).service(CountingService::default());
        let mut closed = ServiceBuilder::new().layer(layer.fail_closed()).service(CountingService::default());
        let stopwatch = Stopwatch::start();
        assert_eq!(status(&mut open).await, StatusCode::OK);
        stopwatch.assert_elapsed(deadline);
        let stopwatch = Stopwatch::start();
        assert_eq!(status(&mut closed).await, StatusCode::SERVICE_UNAVAILABLE);
        stopwatch.assert_elapsed(deadline);
    }
}

/// Time between the call and the first poll does not count.
#[tokio::test(start_paused = true)]
async fn law_8_the_deadline_counts_from_the_first_poll() {
    let mut service =
        ServiceBuilder::new().layer(layer(Limiter::new(SilentStore), 1)).service(CountingService::default());
    let response = service.ready().await.unwrap().call(EmptyRequest::default());
    tokio::time::advance(10 * DEFAULT).await;
    let stopwatch = Stopwatch::start();
    assert!(within_10_seconds(response).await.unwrap().status().is_success());
    stopwatch.assert_elapsed(DEFAULT);
}

#[tokio::test(start_paused = true)]
async fn law_8_a_limiter_without_http_keeps_the_deadline() {
    let limiter = Limiter::new(SilentStore);
    let policy = Policy::per_minute("all", 1).unwrap();
    let stopwatch = Stopwatch::start();
    let check = within_10_seconds(limiter.check("key", &policy, 1)).await.unwrap_err();
    assert_eq!((check.kind(), check.may_have_charged()), (ErrorKind::Deadline, true));
    let peek = within_10_seconds(limiter.peek("key", &policy)).await.unwrap_err();
    assert_eq!(peek.kind(), ErrorKind::Deadline);
    let reset = within_10_seconds(limiter.reset("key", &policy)).await.unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::Deadline);
    stopwatch.assert_elapsed(3 * DEFAULT);
}

/// While a test has paused tokio's clock, no time passes for a check, however long other tasks compute.
#[tokio::test(start_paused = true)]
async fn law_8_what_tasks_compute_in_paused_time_extends_no_deadline() {
    let (limiter, policy) = (Limiter::new(SilentStore), Policy::per_minute("all", 1).unwrap());
    let computing = tokio::spawn(async {
        for _ in 0..5 {
            tokio::time::sleep(DEFAULT / 5).await;
            std::thread::sleep(DEFAULT / 2);
        }
    });
    let start = tokio::time::Instant::now();
    limiter.check("key", &policy, 1).await.unwrap_err();
    assert!(start.elapsed() <= DEFAULT + Duration::from_millis(1), "{:?}", start.elapsed());
    computing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn store_timeout_goes_to_failure_policy_without_retry() {
    for (open, expected) in [(true, StatusCode::OK), (false, StatusCode::SERVICE_UNAVAILABLE)] {
        let store = CountingStore::new(SilentStore);
        let inner = CountingService::default();
        let layer = layer(Limiter::new(store.clone()), 1);
        let layer = if open { layer.fail_open() } else { layer.fail_closed() };
        let mut service = ServiceBuilder::new().layer(layer).service(inner.share());
        assert_eq!(status(&mut service).await, expected);
        assert_eq!((store.sent(), inner.calls()), (1, usize::from(open)));
    }
}

/// A check that may have been charged is sent once, whether the store was silent or the connection broke.
#[tokio::test(start_paused = true)]
async fn law_9_a_store_timeout_goes_to_the_failure_policy_without_retry() {
    for store in [CountingStore::new(SilentStore), CountingStore::new(LostReplyStore)] {
        let mut service = ServiceBuilder::new()
            .layer(layer(Limiter::new(store.clone()), 1).fail_closed())
            .service(CountingService::default());
        for request in 1..=3 {
            assert_eq!(status(&mut service).await, StatusCode::SERVICE_UNAVAILABLE, "{store:?}");
            assert_eq!(store.sent(), request, "one check for each request");
        }
        // Nothing is sent in the background.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(store.sent(), 3, "{store:?}");
    }
}

/// An idle runtime measures no stalls, so its measurements must not extend deadlines on another runtime.
#[test]
fn law_8_the_deadline_also_ends_on_another_runtime() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (one, other) = (runtime(), runtime());
    let limiter = Limiter::new(SilentStore);
    let check = || limiter.check("key", &Policy::per_minute("all", 1).unwrap(), 1);
    // The other runtime measures stalls and becomes idle. This takes real time.
    assert!(other.block_on(other.spawn(check())).unwrap().is_err());
    std::thread::sleep(Duration::from_millis(500));
    let mut moved = Box::pin(check());
    one.block_on(async { assert!(is_pending(moved.as_mut()).await) });
    let start = std::time::Instant::now();
    assert_eq!(other.block_on(other.spawn(moved)).unwrap().unwrap_err().kind(), ErrorKind::Deadline);
    assert!(start.elapsed() < 10 * DEFAULT, "{:?}", start.elapsed());
}

#[test]
fn a_runtime_without_timers_is_an_error_that_names_the_fix_and_not_a_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let limiter = Limiter::new(SilentStore);
    let policy = Policy::per_minute("all", 1).unwrap();
    for _ in 0..3 {
        let error = runtime.block_on(limiter.check("key", &policy, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreMisconfigured);
        assert!(error.to_string().contains("`enable_all()`"), "{error}");
        assert_eq!(runtime.block_on(limiter.reset("key", &policy)).unwrap_err().kind(), ErrorKind::StoreMisconfigured);
    }
    let with_timers = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(with_timers.block_on(limiter.check("key", &policy, 1)).unwrap_err().kind(), ErrorKind::Deadline);
}

/// Polls the future once and returns whether it is pending.
async fn is_pending(mut future: std::pin::Pin<&mut tollgate::limiter::CheckFuture>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(Future::poll(future.as_mut(), cx).is_pending())).await
}

#[test]
fn the_error_says_that_tokios_time_is_paused_and_only_then() {
    for paused in [true, false] {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(paused).build().unwrap();
        let policy = Policy::per_minute("p", 1).unwrap();
        let error = runtime.block_on(Limiter::new(SilentStore).check("k", &policy, 1)).unwrap_err();
        assert_eq!(error.to_string().contains("tokio's time is paused"), paused, "{error}");
        assert!(error.may_have_charged());
    }
}
