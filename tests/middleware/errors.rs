//! The inner service's errors are its own; the layer adds none.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use axum::body::Body;
use http::{Request, Response, request::Parts};
use tollgate::{Key, Policy, RateLimitLayer};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::counting::{AnswerKind, BytesResponse, EmptyRequest};

/// Not an `Error`, not `Send`-able into a box, nothing that could be converted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Broken {
    InCall(u8),
    InReadiness,
}

#[derive(Clone)]
struct Fails(Broken);

impl Service<EmptyRequest> for Fails {
    type Response = BytesResponse;
    type Error = Broken;
    type Future = Ready<Result<BytesResponse, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(if self.0 == Broken::InReadiness { Err(self.0) } else { Ok(()) })
    }

    fn call(&mut self, _: EmptyRequest) -> Self::Future {
        ready(Err(self.0))
    }
}

#[tokio::test]
async fn law_7_errors_pass_through_untouched() {
    for kind in AnswerKind::BOTH {
        for broken in [Broken::InCall(17), Broken::InReadiness] {
            let limited = ServiceBuilder::new().layer(kind.layer(10)).service(Fails(broken));
            assert_eq!(limited.oneshot(EmptyRequest::default()).await.unwrap_err(), broken, "{kind:?}");
            let policy = Policy::per_minute("all", 10).unwrap();
            let layer = RateLimitLayer::new(kind.limiter(), policy, |_: &Parts| None::<Key>);
            let exempt = ServiceBuilder::new().layer(layer).service(Fails(broken));
            assert_eq!(exempt.oneshot(EmptyRequest::default()).await.unwrap_err(), broken, "{kind:?}");
        }
    }
}

/// An error is a request that was let through: it has paid.
#[tokio::test]
async fn a_request_that_ends_in_an_error_has_paid() {
    for kind in AnswerKind::BOTH {
        let service = ServiceBuilder::new().layer(kind.layer(1)).service(Fails(Broken::InCall(1)));
        service.clone().oneshot(EmptyRequest::default()).await.unwrap_err();
        let response = service.oneshot(EmptyRequest::default()).await.unwrap();
        assert_eq!(response.status(), 429, "{kind:?}");
    }
}

#[test]
fn error_type_stays_infallible() {
    fn infallible<S: Service<Request<Body>, Error = Infallible>>(_: &S) {}
    let inner = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    for kind in AnswerKind::BOTH {
        infallible(&kind.layer(1).layer(inner));
    }
}
