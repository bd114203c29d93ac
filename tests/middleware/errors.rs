//! The layer returns errors of the inner service unchanged and adds none.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::body::Body;
use http::{Request, Response, request::Parts};
use tollgate::{Key, Policy, RateLimitLayer};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::counting::{AnswerKind, BytesResponse, EmptyRequest};

/// An error type without `std::error::Error`, so that no conversion is possible.
#[derive(Clone, Copy, Debug, PartialEq)]
enum InnerError {
    InCall(u8),
    InReadiness,
}

#[derive(Clone)]
struct FailingService(InnerError);

impl Service<EmptyRequest> for FailingService {
    type Response = BytesResponse;
    type Error = InnerError;
    type Future = Ready<Result<BytesResponse, InnerError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        Poll::Ready(if self.0 == InnerError::InReadiness { Err(self.0) } else { Ok(()) })
    }

    fn call(&mut self, _: EmptyRequest) -> Self::Future {
        ready(Err(self.0))
    }
}

#[tokio::test]
async fn law_7_errors_pass_through_untouched() {
    for kind in AnswerKind::BOTH {
        for error in [InnerError::InCall(17), InnerError::InReadiness] {
            let limited = ServiceBuilder::new().layer(kind.layer(10)).service(FailingService(error));
            assert_eq!(limited.oneshot(EmptyRequest::default()).await.unwrap_err(), error, "{kind:?}");
            let policy = Policy::per_minute("all", 10).unwrap();
            let layer = RateLimitLayer::new(kind.limiter(), policy, |_: &Parts| None::<Key>);
            let exempt = ServiceBuilder::new().layer(layer).service(FailingService(error));
            assert_eq!(exempt.oneshot(EmptyRequest::default()).await.unwrap_err(), error, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_request_that_ends_in_an_error_is_charged() {
    for kind in AnswerKind::BOTH {
        let service = ServiceBuilder::new().layer(kind.layer(1)).service(FailingService(InnerError::InCall(1)));
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
