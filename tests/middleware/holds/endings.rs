//! The end of a response body settles, however the body ends, and exactly once.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use tollgate::middleware::{Bill, HeldBody};
use tollgate::store::SettleAnswer::Settled;
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, Ledger, at_end, layer, left, next, request, settle_in_background, tokens};

/// The response to a request whose handler has set a bill of `cost` units, if any.
async fn answer(ledger: &Ledger, body: Frames, cost: Option<u64>) -> Response<HeldBody<Frames>> {
    answer_to(ledger, request(), Response::new(body), cost).await
}

async fn answer_to(
    ledger: &Ledger,
    request: Request<Body>,
    response: Response<Frames>,
    cost: Option<u64>,
) -> Response<HeldBody<Frames>> {
    let response = Arc::new(Mutex::new(Some(response)));
    let handler = service_fn(move |request: Request<Body>| {
        if let Some(cost) = cost {
            request.extensions().get::<Bill>().unwrap().set_cost(cost);
        }
        let response = response.lock().unwrap().take().unwrap();
        async { Ok::<_, Infallible>(response) }
    });
    ServiceBuilder::new().layer(layer(ledger.limiter(), at_end)).service(handler).oneshot(request).await.unwrap()
}

/// The response of a handler that keeps its bill.
async fn answer_and_bill(ledger: &Ledger, body: Frames) -> (Response<HeldBody<Frames>>, Bill) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let body = Arc::new(Mutex::new(Some(body)));
    let handler = service_fn(move |request: Request<Body>| {
        sender.send(request.extensions().get::<Bill>().unwrap().clone()).unwrap();
        let response = Response::new(body.lock().unwrap().take().unwrap());
        async { Ok::<_, Infallible>(response) }
    });
    let service = ServiceBuilder::new().layer(layer(ledger.limiter(), at_end)).service(handler);
    (service.oneshot(request()).await.unwrap(), receiver.recv().unwrap())
}

#[tokio::test]
async fn a_body_that_ends_is_charged_what_its_bill_says() {
    for (cost, charged) in [(Some(7), 7), (Some(0), 0), (Some(250), 250), (None, 100)] {
        let ledger = Ledger::default();
        let mut body = answer(&ledger, Frames::of(["a", "b"]), cost).await.into_body();
        assert_eq!(left(&ledger.limiter(), &tokens()).await, 900, "held");
        assert!(next(&mut body).is_some());
        assert_eq!(ledger.settlements(), [], "a frame is left");
        assert!(next(&mut body).is_some());
        assert!(next(&mut body).is_none());
        drop(body);
        assert_eq!(ledger.settlements(), [(charged, Settled)], "{cost:?}");
        assert_eq!(left(&ledger.limiter(), &tokens()).await, 1_000 - charged);
    }
}

/// A server that knows from the length that a frame is the last one does not poll again, and may keep the body.
#[tokio::test]
async fn the_last_frame_of_a_body_that_knows_its_end_settles() {
    let ledger = Ledger::default();
    let mut body = answer(&ledger, Frames::of(["a"]), Some(7)).await.into_body();
    assert!(next(&mut body).is_some());
    assert_eq!(ledger.settlements(), [(7, Settled)]);
    drop(body);
    assert_eq!(ledger.settlements().len(), 1);
}

#[tokio::test]
async fn a_body_that_fails_or_is_dropped_half_way_is_charged_what_its_bill_says() {
    for cost in [Some(7), None] {
        let charged = cost.unwrap_or(100);
        let ledger = Ledger::default();
        let mut body = answer(&ledger, Frames::of(["a"]).then_breaks(), cost).await.into_body();
        assert!(next(&mut body).unwrap().is_ok());
        assert!(next(&mut body).unwrap().is_err());
        assert_eq!(ledger.settlements(), [(charged, Settled)]);
        drop(body);
        assert_eq!(ledger.settlements().len(), 1);

        let ledger = Ledger::default();
        let mut body = answer(&ledger, Frames::of(["a"]).then_stays_open(), cost).await.into_body();
        assert!(next(&mut body).is_some());
        assert_eq!(ledger.settlements(), []);
        drop(body);
        assert_eq!(ledger.settlements(), [(charged, Settled)]);
    }
}

#[tokio::test]
async fn a_body_that_is_never_read_is_settled_when_it_is_dropped() {
    let ledger = Ledger::default();
    let response = answer(&ledger, Frames::of(["a"]), Some(7)).await;
    assert_eq!(ledger.settlements(), []);
    drop(response);
    assert_eq!(ledger.settlements(), [(7, Settled)]);
}

#[tokio::test]
async fn trailers_the_size_and_the_end_pass_through() {
    let ledger = Ledger::default();
    let mut body = answer(&ledger, Frames::of(["abc"]).then_trailers(), Some(7)).await.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
    assert_eq!(next(&mut body).unwrap().unwrap().into_data().unwrap(), "abc");
    assert_eq!(ledger.settlements(), [], "the trailers are left");
    assert_eq!(next(&mut body).unwrap().unwrap().into_trailers().unwrap()["grpc-status"], "0");
    assert!(body.is_end_stream());
    assert_eq!(ledger.settlements(), [(7, Settled)]);
}

#[tokio::test]
async fn a_response_without_content_is_settled_at_once() {
    let head = || Request::builder().method(Method::HEAD).body(Body::empty()).unwrap();
    let with = |status| Response::builder().status(status).body(Frames::of(["never sent"])).unwrap();
    let responses = [
        (head(), Response::new(Frames::of(["never sent"]))),
        (request(), with(StatusCode::NO_CONTENT)),
        (request(), with(StatusCode::NOT_MODIFIED)),
        (request(), Response::new(Frames::of([]))),
    ];
    for (request, response) in responses {
        let ledger = Ledger::default();
        let (method, status) = (request.method().clone(), response.status());
        let response = answer_to(&ledger, request, response, Some(7)).await;
        assert_eq!(ledger.settlements(), [(7, Settled)], "{method} {status}");
        drop(response);
        assert_eq!(ledger.settlements().len(), 1);
    }
}

#[tokio::test]
async fn a_bill_counts_what_is_added_to_it_until_the_end_and_not_after() {
    let ledger = Ledger::default();
    let (response, bill) = answer_and_bill(&ledger, Frames::of(["a", "b"])).await;
    let mut body = response.into_body();
    assert_eq!(bill.cost(), None);
    bill.add(3);
    next(&mut body);
    bill.add(4);
    assert_eq!(bill.cost(), Some(7));
    next(&mut body);
    next(&mut body);
    bill.add(100);
    drop((body, bill));
    assert_eq!(ledger.settlements(), [(7, Settled)]);
}

#[tokio::test]
async fn a_bill_above_every_number_charges_the_largest() {
    let ledger = Ledger::default();
    let (response, bill) = answer_and_bill(&ledger, Frames::of(["a"])).await;
    bill.add(u64::MAX);
    bill.add(u64::MAX);
    drop(response);
    assert_eq!(ledger.settlements(), [(tollgate::Policy::MAX_LIMIT, Settled)]);
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 0);
}

#[tokio::test]
async fn a_store_that_does_not_answer_at_once_is_settled_in_the_background() {
    let ledger = Ledger::slow();
    let response = answer(&ledger, Frames::of(["a"]), Some(7)).await;
    drop(response);
    assert_eq!(ledger.settlements(), [], "nothing blocks");
    settle_in_background().await;
    assert_eq!(ledger.settlements(), [(7, Settled)]);
}
