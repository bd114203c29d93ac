//! Upgraded connections: their holds last until the handler drops its bill.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::{convert::Infallible, sync::Mutex, thread};

use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use tokio::runtime::Handle;
use tokio::time::{Duration, sleep};
use tollgate::observe::{Event, Observer};
use tollgate::{
    MemoryStore, Policy, RateLimitLayer, clock::TokioClock, middleware::Bill, policy::HoldSettings,
    store::SettleAnswer::Settled,
};
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

/// Stops the thread that ends the first hold, until the test lets it go on.
struct StopsAtFirstEnd(Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl Observer for StopsAtFirstEnd {
    fn on_event(&self, event: &Event<'_>) {
        if event.name() == "hold_end" {
            let first = self.0.lock().unwrap().take();
            if let Some((stopped, goes_on)) = first {
                stopped.send(()).unwrap();
                goes_on.recv().unwrap();
            }
        }
    }
}

/// The second hold gets too old when the last clone of the bill is gone, and the first hold is just ending.
#[tokio::test(start_paused = true)]
async fn law_15_the_cost_on_the_bill_is_charged_if_the_bill_is_dropped_at_the_longest_age() {
    const LONGEST: Duration = Duration::from_secs(30);
    let ledger = Ledger { store: MemoryStore::new().with_clock(TokioClock::new()), ..Ledger::default() };
    let ((stopped, is_stopped), (go_on, goes_on)) = (channel(), channel());
    let limiter = ledger.limiter().with_observer(StopsAtFirstEnd(Mutex::new(Some((stopped, goes_on)))));
    let holds = HoldSettings::new().with_longest(LONGEST);
    let policies = ["first", "second"].map(|name| Policy::per_minute(name, 1_000).unwrap().with_holds(holds));
    let limit = RateLimitLayer::new(limiter, policies, one_client()).with_cost(100).with_settlement(at_end);
    let (handler, bills) = upgrade(StatusCode::SWITCHING_PROTOCOLS);
    let service = ServiceBuilder::new().layer(limit.with_held_body()).service(handler);
    drop(service.oneshot(request()).await.unwrap());

    let (bill, runtime) = (bills.recv().unwrap(), Handle::current());
    bill.set_cost(7);
    let connection = thread::spawn(move || {
        let _context = runtime.enter();
        drop(bill);
    });
    is_stopped.recv().unwrap();
    sleep(LONGEST + Duration::from_secs(1)).await;
    go_on.send(()).unwrap();
    connection.join().unwrap();
    assert_eq!(ledger.settlements(), [(7, Settled), (7, Settled)]);
}
