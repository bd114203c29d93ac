//! Errors: of the client, which pass through, and of a store without a verdict.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{convert::Infallible, error::Error, io, sync::Arc};

use http::Response;
use tollgate::store::{Answer, FailingStore, Store, Verdict};
use tollgate::{Check, ErrorKind, Key, Limiter, MemoryStore, Policy, ThrottleLayer, throttle::Throttled};
use tower::{Layer, ServiceExt, service_fn};

use super::upstream::{Upstream, call, limiter, memory, millis, secs};
use crate::support::{counting::EmptyRequest, per_minute, says};

#[tokio::test]
async fn errors_of_the_client_pass_through_and_are_charged() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let client = ThrottleLayer::new(limiter(), per_minute("p", 2), "k").layer(service_fn(move |_: EmptyRequest| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err::<Response<()>, _>(io::Error::new(io::ErrorKind::ConnectionRefused, "no route")) }
    }));
    for _ in 0..2 {
        let error = client.clone().oneshot(EmptyRequest::default()).await.unwrap_err();
        assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }
    assert!(client.oneshot(EmptyRequest::default()).await.unwrap_err().is::<Throttled>());
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn errors_of_readiness_pass_through() {
    let broken = tower::util::BoxCloneService::new(
        service_fn(|_: EmptyRequest| async { Ok::<_, io::Error>(Response::new(())) })
            .map_request(|request: EmptyRequest| request),
    );
    // A buffer whose worker is gone is not ready.
    let (buffer, worker) = tower::buffer::Buffer::pair(broken, 1);
    drop(worker);
    let client = ThrottleLayer::new(limiter(), per_minute("p", 2), "k").layer(buffer);
    let error = client.oneshot(EmptyRequest::default()).await.unwrap_err();
    assert!(error.is::<tower::buffer::error::Closed>(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn without_a_verdict_no_call_is_made_by_default() {
    let upstream = Upstream::default();
    let limiter = Limiter::new(FailingStore::over(memory()));
    let client = ThrottleLayer::new(limiter, per_minute("p", 2), "k").layer(upstream.clone());
    let error = call(&client).await.unwrap_err();
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    let source = throttled.source().unwrap().downcast_ref::<tollgate::Error>().unwrap();
    assert_eq!(source.kind(), ErrorKind::Unavailable);
    assert_eq!((throttled.retry_after(), throttled.decision().is_none()), (None, true));
    assert!(throttled.to_string().contains("`fail_open`"), "{throttled}");
    let printed = format!("{throttled}: {}", throttled.source().unwrap());
    assert_eq!(format!("{error:?}"), printed, "what a `main` that returns the error prints");
    assert!(upstream.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_store_that_comes_back_in_time() {
    let upstream = Upstream::default();
    let store = FailingStore::over(memory());
    let client = ThrottleLayer::new(Limiter::new(store.clone()), per_minute("p", 2), "k").layer(upstream.clone());
    let waits = tokio::spawn(async move { call(&client).await });
    tokio::time::sleep(secs(3)).await;
    assert!(upstream.calls().is_empty());
    store.recover();
    waits.await.unwrap().unwrap();
    assert!(upstream.calls()[0] < secs(4), "{:?}", upstream.calls());
}

#[tokio::test(start_paused = true)]
async fn fail_open_makes_the_call_and_still_obeys_pauses() {
    let upstream = Upstream::default();
    let store = FailingStore::over(memory());
    let layer = ThrottleLayer::new(Limiter::new(store.clone()), per_minute("p", 2), "k").fail_open();
    let client = layer.clone().with_max_wait(secs(1)).layer(upstream.clone());
    call(&client).await.unwrap();
    assert!(upstream.calls()[0] <= secs(1), "{:?}", upstream.calls());

    let mut headers = http::HeaderMap::new();
    headers.insert("retry-after", "5".parse().unwrap());
    upstream.respond(http::StatusCode::TOO_MANY_REQUESTS, headers);
    call(&client).await.unwrap();
    let refused_at = upstream.calls()[1];
    let error = call(&client).await.unwrap_err();
    let retry_after = error.downcast_ref::<Throttled>().unwrap().retry_after();
    assert!((secs(3)..=secs(5)).contains(&retry_after.unwrap()), "{retry_after:?}");
    call(&layer.with_max_wait(secs(8)).layer(upstream.clone())).await.unwrap();
    assert!(upstream.calls()[2] >= refused_at + secs(5), "{:?}", upstream.calls());
}

/// Such a runtime cannot wait. The upstream still must not be called.
#[test]
fn a_call_during_a_pause_is_an_error_in_a_runtime_without_timers() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let upstream = service_fn(|_: EmptyRequest| async {
        let response = Response::builder().status(429).header("retry-after", "5");
        Ok::<_, Infallible>(response.body(()).unwrap())
    });
    let layer = |policy: Policy| {
        let limiter = Limiter::new(MemoryStore::new()).without_notices();
        ThrottleLayer::new(limiter, policy, "k")
    };
    for layer in [layer(per_minute("p", 9)).fail_open(), layer(per_minute("p", 9).with_shadow(true))] {
        let client = layer.layer(upstream);
        let (first, second) = runtime.block_on(async { (call(&client).await, call(&client).await) });
        assert_eq!(first.unwrap(), 429);
        let error = second.unwrap_err();
        let throttled = error.downcast_ref::<Throttled>().unwrap();
        assert!(throttled.retry_after().is_some_and(|wait| wait <= secs(5)), "{throttled:?}");
        says(throttled.source().unwrap(), "build it with `enable_all()`");
    }
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_store_refuses_under_every_failure_policy() {
    let upstream = Upstream::default();
    let store = FailingStore::over(memory());
    store.fail(ErrorKind::Overloaded);
    let layer = ThrottleLayer::new(Limiter::new(store), per_minute("p", 2), "k").with_max_wait(secs(1));
    let error = call(&layer.fail_open().layer(upstream.clone())).await.unwrap_err();
    let source = error.downcast_ref::<Throttled>().unwrap().source().unwrap();
    assert_eq!(source.downcast_ref::<tollgate::Error>().unwrap().kind(), ErrorKind::Overloaded);
    assert!(upstream.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn fail_local_spends_this_instances_share() {
    let upstream = Upstream::default();
    let limiter = Limiter::new(FailingStore::over(memory())).with_local_fallback(memory(), 4);
    let layer = ThrottleLayer::new(limiter, per_minute("p", 8), "k").fail_local();
    let client = layer.layer(upstream.clone());
    call(&client).await.unwrap();
    call(&client).await.unwrap();
    let error = call(&client).await.unwrap_err();
    let retry_after = error.downcast_ref::<Throttled>().unwrap().retry_after().unwrap();
    assert!((millis(59_990)..=secs(60)).contains(&retry_after), "{retry_after:?}");
    upstream.assert_calls(&[0, 0].map(secs));
}

/// A store whose connection breaks 20 ms after each check, so that it is not asked again.
#[derive(Debug)]
struct BreakingStore;

impl Store for BreakingStore {
    fn check(&self, _: &Check) -> Answer<Verdict> {
        Answer::pending(async {
            tokio::time::sleep(millis(20)).await;
            Err(tollgate::Error::new(ErrorKind::Unavailable, "connection reset").charge_unknown())
        })
    }

    fn reset(&self, _: &Key, _: &Policy) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

#[tokio::test(start_paused = true)]
async fn fail_open_waits_for_the_end_of_a_pause_that_began_while_the_store_was_asked() {
    for (max_wait, waits) in [(secs(10), true), (secs(1), false)] {
        let upstream = Upstream::first(429, &[("retry-after", "2")]).with_latency(millis(10));
        let layer = ThrottleLayer::new(Limiter::new(BreakingStore), per_minute("p", 2), "k").fail_open();
        let client = layer.with_max_wait(max_wait).layer(upstream.clone());
        let (first, second) = tokio::join!(call(&client), async {
            tokio::time::sleep(millis(15)).await;
            call(&client).await
        });
        assert_eq!(first.unwrap(), 429);
        if waits {
            assert_eq!(second.unwrap(), 200);
            upstream.assert_calls(&[20, 2_030].map(millis));
        } else {
            let retry_after = second.unwrap_err().downcast_ref::<Throttled>().unwrap().retry_after().unwrap();
            assert!((millis(1_980)..secs(2)).contains(&retry_after), "{retry_after:?}");
            upstream.assert_calls(&[millis(20)]);
        }
    }
}
