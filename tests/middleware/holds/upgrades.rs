//! Upgraded connections: their holds last until the handler drops its bill.

use std::{
    convert::Infallible,
    sync::mpsc::{Receiver, channel},
};

use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use tollgate::{RateLimitLayer, middleware::Bill, store::SettleAnswer::Settled};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, Ledger, at_end, layer, left, one_client, request, uploads};

/// A service that upgrades the connection, and the bill that its handler keeps.
fn upgrade(
    status: StatusCode,
) -> (
    impl tower::Service<Request<Body>, Response = Response<Frames>, Error = Infallible, Future: Send> + Clone,
    Receiver<Bill>,
) {
    let (sender, receiver) = channel();
    let handler = service_fn(move |request: Request<Body>| {
        let _ = sender.send(request.extensions().get::<Bill>().unwrap().clone());
        let response = Response::builder().status(status).body(Frames::of([])).unwrap();
        async { Ok(response) }
    });
    (handler, receiver)
}

#[tokio::test]
async fn holds_of_an_upgrade_last_until_the_last_clone_of_the_bill_is_dropped() {
    let connect = || Request::builder().method(Method::CONNECT).body(Body::empty()).unwrap();
    for (request, status) in [(request(), StatusCode::SWITCHING_PROTOCOLS), (connect(), StatusCode::OK)] {
        let ledger = Ledger::default();
        let (handler, bills) = upgrade(status);
        let service = ServiceBuilder::new()
            .layer(
                RateLimitLayer::new(ledger.limiter(), uploads(), one_client()).with_settlement(at_end).with_held_body(),
            )
            .layer(layer(ledger.limiter(), at_end))
            .service(handler);
        drop(service.oneshot(request).await.unwrap());
        assert_eq!(ledger.settlements(), []);
        assert_eq!(left(&ledger.limiter(), &uploads()).await, 2);

        let bill = bills.recv().unwrap();
        let clone = bill.clone();
        drop(bill);
        clone.set_cost(7);
        assert_eq!(ledger.settlements(), []);
        drop(clone);
        let mut settlements = ledger.settlements();
        settlements.sort_by_key(|(units, _)| *units);
        assert_eq!(settlements, [(0, Settled), (7, Settled)]);
        assert_eq!(left(&ledger.limiter(), &uploads()).await, 3);
    }
}

#[tokio::test]
async fn an_upgrade_whose_handler_keeps_no_bill_is_settled_at_once() {
    let ledger = Ledger::default();
    let (handler, bills) = upgrade(StatusCode::SWITCHING_PROTOCOLS);
    drop(bills);
    let service = ServiceBuilder::new().layer(layer(ledger.limiter(), at_end)).service(handler);
    let response = service.oneshot(request()).await.unwrap();
    assert_eq!(ledger.settlements(), [(100, Settled)]);
    drop(response);
    assert_eq!(ledger.settlements().len(), 1);
}

/// Only a 2xx to CONNECT is an upgrade.
#[tokio::test]
async fn a_connect_that_fails_is_settled_with_its_body() {
    let ledger = Ledger::default();
    let (handler, bills) = upgrade(StatusCode::BAD_GATEWAY);
    let connect = Request::builder().method(Method::CONNECT).body(Body::empty()).unwrap();
    let response = ServiceBuilder::new().layer(layer(ledger.limiter(), at_end)).service(handler).oneshot(connect).await;
    drop(response);
    assert_eq!(ledger.settlements(), [(100, Settled)]);
    drop(bills);
}
