//! A refused request never reaches the inner service and holds none of its capacity.

use http::{StatusCode, request::Parts};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Limiter, Policy, RateLimitLayer, key::KeyError};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_test::mock;

use crate::support::DownStore;
use crate::support::counting::{AnswerKind, BytesResponse, CountingService, EmptyRequest, status};

#[tokio::test]
async fn inner_is_not_called_when_refused() {
    for kind in AnswerKind::BOTH {
        let (mut service, mut handle) = mock::spawn_layer::<EmptyRequest, BytesResponse, _>(kind.layer(1));
        handle.allow(10);
        assert_ready_ok!(service.poll_ready());
        let (response, ()) = tokio::join!(service.call(EmptyRequest::default()), async {
            handle.next_request().await.unwrap().1.send_response(BytesResponse::default());
        });
        assert_eq!(response.unwrap().status(), StatusCode::OK, "{kind:?}");
        for _ in 0..3 {
            assert_ready_ok!(service.poll_ready());
            let response = service.call(EmptyRequest::default()).await.unwrap();
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{kind:?}");
            assert_pending!(handle.poll_request(), "{kind:?}");
        }
    }
}

/// Also not as a call whose future is dropped: a `Buffer` or a connection starts to work when it is called.
#[tokio::test]
async fn law_7_a_denied_request_never_reaches_the_inner_service() {
    for kind in AnswerKind::BOTH {
        let inner = CountingService::default();
        let mut service = ServiceBuilder::new().layer(kind.layer(3)).service(inner.share());
        let mut denied = 0;
        for _ in 0..10 {
            denied += usize::from(status(&mut service).await == StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!((inner.calls(), denied), (3, 7), "{kind:?}");
    }
}

#[tokio::test]
async fn law_7_a_request_that_cannot_be_checked_never_reaches_the_inner_service() {
    for kind in AnswerKind::BOTH {
        let inner = CountingService::default();
        let without_key = RateLimitLayer::new(kind.limiter(), policy(10), no_key);
        let mut without_key = without_key.layer_on(&inner);
        assert_eq!(status(&mut without_key).await, StatusCode::BAD_REQUEST, "{kind:?}");
        let above_limit = kind.layer(10).with_cost_fn(|_| 11);
        let mut above_limit = above_limit.layer_on(&inner);
        assert_eq!(status(&mut above_limit).await, StatusCode::BAD_REQUEST, "{kind:?}");
        assert_eq!(inner.calls(), 0, "{kind:?}");
    }
    let inner = CountingService::default();
    let mut closed = crate::support::counting::layer(Limiter::new(DownStore), 1).fail_closed().layer_on(&inner);
    assert_eq!(status(&mut closed).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(inner.calls(), 0);
}

/// A refused request returns its permit at once, although its service is not dropped.
#[tokio::test]
async fn refused_request_releases_the_inner_reservation() {
    for kind in AnswerKind::BOTH {
        let service =
            ServiceBuilder::new().layer(kind.layer(1)).concurrency_limit(1).service(CountingService::default());
        let (mut first, mut second) = (service.clone(), service);
        assert_eq!(status(&mut first).await, StatusCode::OK, "{kind:?}");
        assert_eq!(status(&mut first).await, StatusCode::TOO_MANY_REQUESTS, "{kind:?}");
        assert_ready_ok!(tokio_test::task::spawn(second.ready()).poll(), "{kind:?}");
    }
}

#[tokio::test]
async fn request_without_a_key_releases_the_inner_reservation() {
    let layer = RateLimitLayer::new(AnswerKind::Pending.limiter(), policy(1), no_key);
    let service = ServiceBuilder::new().layer(layer).concurrency_limit(1).service(CountingService::default());
    let (mut first, mut second) = (service.clone(), service);
    assert_eq!(status(&mut first).await, StatusCode::BAD_REQUEST);
    assert_ready_ok!(tokio_test::task::spawn(second.ready()).poll());
}

/// After a refusal, the same instance accepts the next request.
#[tokio::test]
async fn a_service_that_refused_can_be_used_again() {
    for kind in AnswerKind::BOTH {
        let cost = |parts: &Parts| if parts.uri.path() == "/expensive" { 2 } else { 1 };
        let layer = kind.layer(2).with_cost_fn(cost);
        let mut service = ServiceBuilder::new().layer(layer).concurrency_limit(1).service(CountingService::default());
        assert_eq!(status(&mut service).await, StatusCode::OK, "{kind:?}");
        let request = EmptyRequest::get("/expensive").body(()).unwrap();
        let refused = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{kind:?}");
        assert_ready_ok!(tokio_test::task::spawn(service.ready()).poll(), "{kind:?}");
        assert_eq!(status(&mut service).await, StatusCode::OK, "{kind:?}");
    }
}

fn policy(limit: u64) -> Policy {
    Policy::per_minute("all", limit).unwrap()
}

fn no_key(_: &Parts) -> Result<tollgate::Key, KeyError> {
    Err(KeyError::missing("a key"))
}

trait LayerOn<K>: Sized {
    fn layer_on(&self, inner: &CountingService) -> tollgate::middleware::RateLimit<CountingService, K>;
}

impl<K> LayerOn<K> for RateLimitLayer<K> {
    fn layer_on(&self, inner: &CountingService) -> tollgate::middleware::RateLimit<CountingService, K> {
        tower::Layer::layer(self, inner.share())
    }
}
