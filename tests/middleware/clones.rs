//! The inner service is cloned only while a verdict is pending.

use http::request::Parts;
use tollgate::{Key, Policy, RateLimitLayer, Route};
use tower::{ServiceBuilder, ServiceExt};

use crate::support::counting::{AnswerKind, CountingService, EmptyRequest, status};

#[tokio::test]
async fn exempt_request_takes_no_clone() {
    for kind in AnswerKind::BOTH {
        let (by_key, by_route) = (CountingService::default(), CountingService::default());
        let policy = Policy::per_minute("all", 1).unwrap();
        let none = |_: &Parts| None::<Key>;
        let layer = RateLimitLayer::new(kind.limiter(), policy, none);
        let mut service = ServiceBuilder::new().layer(layer).service(by_key.share());
        let layer = kind.layer(1).route("/", Route::exempt());
        let mut routed = ServiceBuilder::new().layer(layer).service(by_route.share());
        for _ in 0..5 {
            assert!(status(&mut service).await.is_success(), "{kind:?}");
            assert!(status(&mut routed).await.is_success(), "{kind:?}");
        }
        assert_eq!((by_key.calls(), by_key.clones()), (5, 0), "{kind:?}");
        assert_eq!((by_route.calls(), by_route.clones()), (5, 0), "{kind:?}");
    }
}

#[tokio::test]
async fn a_ready_verdict_takes_no_clone() {
    let witness = CountingService::default();
    let mut service = ServiceBuilder::new().layer(AnswerKind::Ready.layer(5)).service(witness.share());
    for _ in 0..5 {
        assert!(status(&mut service).await.is_success());
    }
    assert_eq!((witness.calls(), witness.clones()), (5, 0));
}

#[tokio::test]
async fn a_pending_verdict_takes_one_clone() {
    let witness = CountingService::default();
    let service = ServiceBuilder::new().layer(AnswerKind::Pending.layer(5)).service(witness.share());
    assert!(service.oneshot(EmptyRequest::default()).await.unwrap().status().is_success());
    assert_eq!((witness.calls(), witness.clones()), (1, 1));
}
