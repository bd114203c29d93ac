//! Requests that fail before they have a response.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{convert::Infallible, panic::AssertUnwindSafe};

use axum::body::Body;
use http::{Request, Response, response::Parts};
use tokio_test::{assert_pending, task};
use tollgate::middleware::{Bill, Settlement};
use tollgate::observe::{Event, Observer};
use tollgate::store::SettleAnswer::{self, Expired, Settled};
use tollgate::store::{Answer, Charge, Check, HoldChange, Store, Verdict};
use tollgate::{Key, Limiter, MemoryStore, Policy, RateLimitLayer, policy::HoldSettings};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::recorder::{Recorder, assert_warnings};

use super::{Broken, Frames, Ledger, at_end, layer, left, one_client, request, settle_in_background, tokens, uploads};

/// 1 000 units a minute, whose holds are released if nothing settles them.
fn released() -> Policy {
    tokens().with_holds(HoldSettings::new().with_unsettled_released(true))
}

async fn fails(request: Request<Body>) -> Result<Response<Frames>, Broken> {
    if let Some(cost) = request.headers().get("x-cost") {
        let bill = request.extensions().get::<Bill>().unwrap();
        bill.set_cost(cost.to_str().unwrap().parse().unwrap());
    }
    match request.uri().path() {
        "/panics" => panic!("the handler of a test"),
        _ => Err(Broken),
    }
}

fn request_to(path: &str, cost: Option<u64>) -> Request<Body> {
    let mut request = Request::get(path);
    if let Some(cost) = cost {
        request = request.header("x-cost", cost);
    }
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn an_error_and_a_panic_settle_by_the_bill_or_else_by_the_policy() {
    for path in ["/errs", "/panics"] {
        for (policy, cost, charged) in
            [(tokens(), None, 100), (released(), None, 0), (tokens(), Some(7), 7), (released(), Some(7), 7)]
        {
            let ledger = Ledger::default();
            let limit = RateLimitLayer::new(ledger.limiter(), policy, one_client()).with_cost(100);
            let service = ServiceBuilder::new().layer(limit.with_settlement(at_end).with_held_body()).service_fn(fails);
            let call = AssertUnwindSafe(service.oneshot(request_to(path, cost)));
            let result = tokio::spawn(async move { call.0.await.map(|_| ()) }).await;
            assert!(!matches!(result, Ok(Ok(()))));
            assert_eq!(ledger.settlements(), [(charged, Settled)], "{path} {cost:?}");
        }
    }
}

/// As a server does when its client goes away.
#[tokio::test]
async fn a_response_future_that_is_dropped_settles() {
    for (policy, charged) in [(tokens(), 100), (released(), 0)] {
        let ledger = Ledger::default();
        let limit = RateLimitLayer::new(ledger.limiter(), policy, one_client()).with_cost(100);
        let hangs = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Frames>, Infallible>>());
        let mut service = ServiceBuilder::new().layer(limit.with_settlement(at_end).with_held_body()).service(hangs);
        let mut response = task::spawn(service.ready().await.unwrap().call(request()));
        assert_pending!(response.poll());
        assert_eq!(ledger.settlements(), []);
        drop(response);
        assert_eq!(ledger.settlements(), [(charged, Settled)]);
    }
}

/// The store may have made the hold: it is settled as one of a request that fails.
#[tokio::test]
async fn a_response_future_that_is_dropped_while_the_store_is_asked_settles() {
    let ledger = Ledger::slow();
    let mut service = ServiceBuilder::new().layer(layer(ledger.limiter(), at_end)).service_fn(fails);
    drop(service.ready().await.unwrap().call(request()));
    settle_in_background().await;
    assert_eq!(ledger.settlements(), [], "nothing was sent");

    let mut response = task::spawn(service.ready().await.unwrap().call(request()));
    assert_pending!(response.poll());
    drop(response);
    settle_in_background().await;
    assert_eq!(ledger.settlements(), [(100, Expired)], "the store had made no hold yet");
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 1_000);
}

#[tokio::test]
async fn a_closure_that_panics_settles_by_the_policy() {
    let ledger = Ledger::default();
    let limit = layer(ledger.limiter(), |_: &Parts| -> Settlement { panic!("the closure of a test") });
    let handler = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Frames::of(["a"]))) });
    let call = ServiceBuilder::new().layer(limit).service(handler).oneshot(request());
    assert!(tokio::spawn(async move { call.await.map(|_| ()) }).await.is_err());
    assert_eq!(ledger.settlements(), [(100, Settled)]);
}

/// Nothing is held, and the handler has its bill all the same.
#[tokio::test]
async fn a_request_that_passes_without_a_verdict_settles_nothing() {
    let ledger = Ledger::down();
    let limit = layer(ledger.limiter(), at_end).fail_open();
    let handler = service_fn(|request: Request<Body>| async move {
        request.extensions().get::<Bill>().expect("a bill").set_cost(5);
        Ok::<_, Infallible>(Response::new(Frames::of(["a"])))
    });
    let response = ServiceBuilder::new().layer(limit).service(handler).oneshot(request()).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    assert_eq!(ledger.settlements(), []);
}

/// `fail_open` is the default, and the requests look like others.
#[tokio::test]
async fn law_13_requests_that_run_without_a_slot_are_reported_once() {
    let recorder = Recorder::default();
    let limiter = Ledger::down().limiter().with_observer(recorder.clone());
    let ok = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Frames::of(["a"]))) });
    let layer = |policies: Vec<Policy>| RateLimitLayer::new(limiter.clone(), policies, one_client());
    let statuses = async |limit: RateLimitLayer<_>| {
        let service = ServiceBuilder::new().layer(limit.with_settlement(at_end).with_held_body()).service(ok);
        let mut statuses = Vec::new();
        for _ in 0..5 {
            statuses.push(service.clone().oneshot(request()).await.unwrap().status().as_u16());
        }
        statuses
    };
    for limit in [
        layer(vec![uploads()]).fail_closed(),
        layer(vec![tokens()]),
        layer(vec![tokens(), uploads().with_shadow(true)]),
    ] {
        statuses(limit).await;
        assert_eq!(recorder.take().warnings, []);
    }
    let open = layer(vec![uploads()]);
    assert_eq!(statuses(open.clone()).await, [200; 5], "more than three at once");
    statuses(open.fail_open()).await;
    let warnings = recorder.take().warnings;
    assert_warnings(&warnings, &[("without_slot", "\"uploads\"")]);
    let text = warnings[0].to_string();
    assert!(text.contains("\"uploads\"") && text.contains("`fail_closed`"), "{text}");
}

/// Panics when a hold ends.
struct PanicsAtEnds;

impl Observer for PanicsAtEnds {
    fn on_event(&self, event: &Event<'_>) {
        if event.name() == "hold_end" {
            panic!("the observer of a test");
        }
    }
}

/// The end of a hold is reported in a destructor, where a second panic would abort the process.
#[tokio::test]
async fn law_16_an_observer_that_panics_beside_a_handler_ends_neither_the_process_nor_the_hold() {
    let ledger = Ledger::default();
    let limit = layer(ledger.limiter().with_observer(PanicsAtEnds), at_end);
    let service = ServiceBuilder::new().layer(limit).service_fn(fails);
    let request = AssertUnwindSafe(service.oneshot(request_to("/panics", None)));
    assert!(tokio::spawn(async move { request.0.await.map(|_| ()) }).await.is_err());
    assert_eq!(ledger.settlements(), [(100, Settled)]);
}

/// A store that panics on the first change of a hold.
#[derive(Debug, Default)]
struct PanicsOnce {
    store: MemoryStore,
    has_panicked: AtomicBool,
}

impl Store for PanicsOnce {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.store.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        assert!(self.has_panicked.swap(true, Ordering::SeqCst), "the store of a test");
        self.store.change_hold(hold, change)
    }
}

#[tokio::test]
async fn a_store_that_panics_beside_a_handler_does_not_end_the_process_and_the_slot_is_given_back() {
    let limiter = Limiter::new(PanicsOnce::default());
    let limit = RateLimitLayer::new(limiter.clone(), uploads(), one_client());
    let service = ServiceBuilder::new().layer(limit.with_settlement(at_end).with_held_body()).service_fn(fails);
    let request = AssertUnwindSafe(service.oneshot(request_to("/panics", None)));
    assert!(tokio::spawn(async move { request.0.await.map(|_| ()) }).await.is_err());
    settle_in_background().await;
    assert_eq!(left(&limiter, &uploads()).await, 3);
}
