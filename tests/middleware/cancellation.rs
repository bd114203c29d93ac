//! Futures that are dropped before they complete, as servers do when a client disconnects.

use http::StatusCode;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tollgate::Limiter;
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::support::SilentStore;
use crate::support::counting::{AnswerKind, CountingService, CountingStore, EmptyRequest, layer, status};

/// With a pending store. A ready store has already decided when `call` returns.
#[tokio::test]
async fn dropping_the_future_before_poll_sends_nothing() {
    let store = AnswerKind::Pending.store();
    let inner = CountingService::default();
    let mut service = ServiceBuilder::new().layer(layer(Limiter::new(store.clone()), 1)).service(inner.share());
    for _ in 0..3 {
        drop(service.ready().await.unwrap().call(EmptyRequest::default()));
    }
    assert_eq!((store.sent(), inner.calls()), (0, 0));
    assert_eq!(status(&mut service).await, StatusCode::OK, "nothing was charged");
}

#[tokio::test]
async fn dropping_a_limiters_future_before_poll_charges_nothing() {
    for kind in AnswerKind::BOTH {
        let store = kind.store();
        let limiter = Limiter::new(store.clone());
        let policy = tollgate::Policy::per_minute("all", 1).unwrap();
        drop(limiter.check("key", &policy, 1));
        assert_eq!(store.sent(), 0, "{kind:?}");
        assert!(limiter.check("key", &policy, 1).await.unwrap().is_allowed(), "{kind:?}");
    }
}

#[tokio::test]
async fn dropping_the_future_during_a_check_calls_nothing_and_releases_the_reservation() {
    let store = CountingStore::new(SilentStore);
    let inner = CountingService::default();
    let layer = layer(Limiter::new(store.clone()), 1);
    let service = ServiceBuilder::new().layer(layer).concurrency_limit(1).service(inner.share());
    let (mut first, mut second) = (service.clone(), service);
    let mut response = task::spawn(first.ready().await.unwrap().call(EmptyRequest::default()));
    assert_pending!(response.poll());
    assert_eq!(store.sent(), 1);
    let mut waiting = task::spawn(second.ready());
    assert_pending!(waiting.poll(), "the check holds the reservation");
    drop(response);
    assert!(waiting.is_woken());
    assert_ready_ok!(waiting.poll());
    assert_eq!((store.sent(), inner.calls()), (1, 0));
}
