//! The inner service is cloned only where the verdict has to be waited for.

use http::request::Parts;
use tollgate::{Key, Policy, RateLimitLayer, Route};
use tower::{ServiceBuilder, ServiceExt};

use crate::support::counting::{Answers, Head, Witness, status};

#[tokio::test]
async fn exempt_request_takes_no_clone() {
    for answers in Answers::BOTH {
        let (by_key, by_route) = (Witness::default(), Witness::default());
        let policy = Policy::per_minute("all", 1).unwrap();
        let nobody = |_: &Parts| None::<Key>;
        let layer = RateLimitLayer::new(answers.limiter(), policy, nobody);
        let mut service = ServiceBuilder::new().layer(layer).service(by_key.watch());
        let layer = answers.layer(1).route("/", Route::exempt()).unwrap();
        let mut routed = ServiceBuilder::new().layer(layer).service(by_route.watch());
        for _ in 0..5 {
            assert!(status(&mut service).await.is_success(), "{answers:?}");
            assert!(status(&mut routed).await.is_success(), "{answers:?}");
        }
        assert_eq!((by_key.calls(), by_key.clones()), (5, 0), "{answers:?}");
        assert_eq!((by_route.calls(), by_route.clones()), (5, 0), "{answers:?}");
    }
}

#[tokio::test]
async fn a_verdict_at_once_takes_no_clone() {
    let witness = Witness::default();
    let mut service = ServiceBuilder::new().layer(Answers::AtOnce.layer(5)).service(witness.watch());
    for _ in 0..5 {
        assert!(status(&mut service).await.is_success());
    }
    assert_eq!((witness.calls(), witness.clones()), (5, 0));
}

#[tokio::test]
async fn a_verdict_that_comes_later_takes_one_clone() {
    let witness = Witness::default();
    let service = ServiceBuilder::new().layer(Answers::Later.layer(5)).service(witness.watch());
    assert!(service.oneshot(Head::default()).await.unwrap().status().is_success());
    assert_eq!((witness.calls(), witness.clones()), (1, 1));
}
