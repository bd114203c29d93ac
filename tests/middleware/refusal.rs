//! A refused request leaves no trace behind the gate.

use http::{StatusCode, request::Parts};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Limiter, Policy, RateLimitLayer, key::KeyError};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_test::mock;

use crate::support::{
    Down,
    counting::{Answers, Head, Reply, Witness, status},
};

#[tokio::test]
async fn inner_is_not_called_when_refused() {
    for answers in Answers::BOTH {
        let (mut service, mut handle) = mock::spawn_layer::<Head, Reply, _>(answers.layer(1));
        handle.allow(10);
        assert_ready_ok!(service.poll_ready());
        let (response, ()) = tokio::join!(service.call(Head::default()), async {
            handle.next_request().await.unwrap().1.send_response(Reply::default());
        });
        assert_eq!(response.unwrap().status(), StatusCode::OK, "{answers:?}");
        for _ in 0..3 {
            assert_ready_ok!(service.poll_ready());
            let response = service.call(Head::default()).await.unwrap();
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{answers:?}");
            assert_pending!(handle.poll_request(), "{answers:?}");
        }
    }
}

/// Not even a call whose future is thrown away: a `Buffer` or a connection starts to work when it is called.
#[tokio::test]
async fn law_7_a_denied_request_never_reaches_the_inner_service() {
    for answers in Answers::BOTH {
        let witness = Witness::default();
        let mut service = ServiceBuilder::new().layer(answers.layer(3)).service(witness.watch());
        let mut denied = 0;
        for _ in 0..10 {
            denied += usize::from(status(&mut service).await == StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!((witness.calls(), denied), (3, 7), "{answers:?}");
    }
}

#[tokio::test]
async fn law_7_a_request_that_cannot_be_judged_never_reaches_the_inner_service() {
    for answers in Answers::BOTH {
        let witness = Witness::default();
        let without_key = RateLimitLayer::new(answers.limiter(), policy(10), no_key);
        let mut without_key = without_key.layer_on(&witness);
        assert_eq!(status(&mut without_key).await, StatusCode::BAD_REQUEST, "{answers:?}");
        let too_dear = answers.layer(10).with_cost(|_: &Parts| 11).unwrap();
        let mut too_dear = too_dear.layer_on(&witness);
        assert_eq!(status(&mut too_dear).await, StatusCode::BAD_REQUEST, "{answers:?}");
        assert_eq!(witness.calls(), 0, "{answers:?}");
    }
    let witness = Witness::default();
    let mut closed = crate::support::counting::layer(Limiter::new(Down), 1).fail_closed().layer_on(&witness);
    assert_eq!(status(&mut closed).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(witness.calls(), 0);
}

/// A refused request returns its permit at once, although the service that it was sent through lives on.
#[tokio::test]
async fn refused_request_releases_the_inner_reservation() {
    for answers in Answers::BOTH {
        let service = ServiceBuilder::new().layer(answers.layer(1)).concurrency_limit(1).service(Witness::default());
        let (mut first, mut second) = (service.clone(), service);
        assert_eq!(status(&mut first).await, StatusCode::OK, "{answers:?}");
        assert_eq!(status(&mut first).await, StatusCode::TOO_MANY_REQUESTS, "{answers:?}");
        assert_ready_ok!(tokio_test::task::spawn(second.ready()).poll(), "{answers:?}");
    }
}

#[tokio::test]
async fn request_without_a_key_releases_the_inner_reservation() {
    let layer = RateLimitLayer::new(Answers::Later.limiter(), policy(1), no_key);
    let service = ServiceBuilder::new().layer(layer).concurrency_limit(1).service(Witness::default());
    let (mut first, mut second) = (service.clone(), service);
    assert_eq!(status(&mut first).await, StatusCode::BAD_REQUEST);
    assert_ready_ok!(tokio_test::task::spawn(second.ready()).poll());
}

/// The service is not spent: once there is room again, the same instance lets requests through.
#[tokio::test]
async fn a_service_that_refused_can_be_used_again() {
    for answers in Answers::BOTH {
        let dear = |parts: &Parts| if parts.uri.path() == "/dear" { 2 } else { 1 };
        let layer = answers.layer(2).with_cost(dear).unwrap();
        let mut service = ServiceBuilder::new().layer(layer).concurrency_limit(1).service(Witness::default());
        assert_eq!(status(&mut service).await, StatusCode::OK, "{answers:?}");
        let request = Head::get("/dear").body(()).unwrap();
        let refused = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{answers:?}");
        assert_ready_ok!(tokio_test::task::spawn(service.ready()).poll(), "{answers:?}");
        assert_eq!(status(&mut service).await, StatusCode::OK, "{answers:?}");
    }
}

fn policy(limit: u32) -> Policy {
    Policy::per_minute("all", limit).unwrap()
}

fn no_key(_: &Parts) -> Result<tollgate::Key, KeyError> {
    Err(KeyError::missing("a key"))
}

trait LayerOn<K>: Sized {
    fn layer_on(&self, witness: &Witness) -> tollgate::middleware::RateLimit<Witness, K>;
}

impl<K> LayerOn<K> for RateLimitLayer<K> {
    fn layer_on(&self, witness: &Witness) -> tollgate::middleware::RateLimit<Witness, K> {
        tower::Layer::layer(self, witness.watch())
    }
}
