//! Work that outlives its request keeps the holds of the request with a guard.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body, extract::Request, routing::get};
use http::{Response, StatusCode};
use tokio::time::{sleep, timeout};
use tokio::{sync::Notify, task::spawn_blocking};
use tollgate::middleware::{Bill, HoldGuard};
use tollgate::{
    Limiter, MemoryStore, Policy, RateLimitLayer, Route, clock::TokioClock, policy::HoldSettings,
    store::SettleAnswer::Settled,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, Ledger, at_end, layer, left, one_client, request, settle_in_background, tokens, uploads};

/// The number of jobs that run now, and the most that have run at the same time.
#[derive(Clone, Default)]
struct Running(Arc<(AtomicUsize, AtomicUsize)>);

impl Running {
    fn start(&self) {
        let running = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(running, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// Each client hangs up as soon as its work has started. The work waits for the end of the test.
#[tokio::test]
async fn law_1_work_whose_clients_have_hung_up_keeps_its_slots_with_guards() {
    for guarded in [true, false] {
        let ledger = Ledger::default();
        let running = Running::default();
        let (started, mut has_started) = tokio::sync::mpsc::unbounded_channel();
        let (end, has_ended) = mpsc::channel::<()>();
        let has_ended = Arc::new(std::sync::Mutex::new(has_ended));
        let handler = {
            let running = running.clone();
            move |guard: HoldGuard| async move {
                let guard = guarded.then_some(guard);
                let work = spawn_blocking(move || {
                    let _guard = guard;
                    running.start();
                    started.send(()).unwrap();
                    let _ = has_ended.lock().unwrap().recv();
                    running.end();
                });
                work.await.unwrap();
            }
        };
        let one = Policy::concurrent("one", 1).unwrap();
        let limit = RateLimitLayer::new(ledger.limiter(), one.clone(), one_client());
        let app = Router::new().route("/", get(handler)).layer(limit);
        let mut refused = 0;
        for _ in 0..30 {
            let mut response = Box::pin(app.clone().oneshot(request()));
            tokio::select! {
                biased;
                response = &mut response => {
                    assert_eq!(response.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
                    refused += 1;
                }
                Some(()) = has_started.recv() => {}
            }
        }
        drop(end);
        if guarded {
            assert_eq!((running.most(), refused), (1, 29));
            while left(&ledger.limiter(), &one).await == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(ledger.settlements(), [(0, Settled)]);
        } else {
            assert_eq!(refused, 0, "without a guard, the slot is free when the client hangs up");
        }
    }
}

/// Hands out what the handler has been given, and answers at once.
fn handing_out(
    make: impl Fn(&Bill) -> HoldGuard + Clone + Send + 'static,
) -> (
    impl tower::Service<Request, Response = Response<Frames>, Error = Infallible, Future: Send> + Clone,
    mpsc::Receiver<HoldGuard>,
) {
    let (sender, guards) = mpsc::channel();
    let handler = service_fn(move |request: Request| {
        sender.send(make(request.extensions().get().expect("a bill"))).unwrap();
        async { Ok(Response::new(Frames::of(["a"]))) }
    });
    (handler, guards)
}

#[tokio::test]
async fn the_last_guard_charges_what_the_bill_says_then() {
    let ledger = Ledger::default();
    let (sender, bills) = mpsc::channel();
    let (handler, guards) = handing_out(move |bill| {
        sender.send(bill.clone()).unwrap();
        bill.guard()
    });
    let service = ServiceBuilder::new().layer(layer(ledger.limiter(), at_end)).service(handler);
    drop(service.oneshot(request()).await.unwrap());
    let guard = guards.recv().unwrap();
    assert_eq!(ledger.settlements(), [], "the body was dropped, the guard lives");
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 900);
    let clone = guard.clone();
    drop(guard);
    bills.recv().unwrap().set_cost(7);
    assert_eq!(ledger.settlements(), []);
    drop(clone);
    assert_eq!(ledger.settlements(), [(7, Settled)]);
}

/// Without a cost, a request that has been answered charges what was held, and one that has failed what its policy
/// says, with a guard as without.
#[tokio::test]
async fn a_guard_without_a_cost_charges_what_the_end_of_the_request_has_decided() {
    for (released, answers, charged) in [(true, true, 100), (true, false, 0), (false, false, 100)] {
        let ledger = Ledger::default();
        let policy = tokens().with_holds(HoldSettings::new().with_unsettled_released(released));
        let limit = RateLimitLayer::new(ledger.limiter(), policy, one_client()).with_cost(100);
        let (sender, guards) = mpsc::channel();
        let handler = service_fn(move |request: Request| {
            sender.send(request.extensions().get::<Bill>().unwrap().guard()).unwrap();
            async move {
                if !answers {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Frames::of(["a"])))
            }
        });
        let service = ServiceBuilder::new().layer(limit.with_settlement(at_end).with_held_body()).service(handler);
        let _ = timeout(Duration::from_millis(5), service.oneshot(request())).await;
        assert_eq!(ledger.settlements(), []);
        drop(guards.recv().unwrap());
        assert_eq!(ledger.settlements(), [(charged, Settled)], "{released:?} {answers}");
    }
}

/// The guard was dropped first: the body of the response ends the holds, as without a guard.
#[tokio::test]
async fn a_guard_that_ends_before_its_request_changes_nothing() {
    let ledger = Ledger::default();
    let (sender, bills) = mpsc::channel();
    let (handler, guards) = handing_out(move |bill| {
        sender.send(bill.clone()).unwrap();
        bill.guard()
    });
    let service = ServiceBuilder::new().layer(layer(ledger.limiter(), at_end)).service(handler);
    let response = service.oneshot(request()).await.unwrap();
    drop(guards.recv().unwrap());
    let bill = bills.recv().unwrap();
    assert_eq!(ledger.settlements(), []);
    drop(response);
    assert_eq!(ledger.settlements(), [(100, Settled)]);
    drop(bill.guard());
    assert_eq!(ledger.settlements().len(), 1, "a guard that comes too late keeps nothing");
}

/// By the clock of the store, a slot that is not renewed ends after its time-to-live.
#[tokio::test(start_paused = true)]
async fn a_slot_that_a_guard_keeps_is_renewed() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new()));
    let done = Arc::new(Notify::new());
    let handler = {
        let done = Arc::clone(&done);
        |guard: HoldGuard| async move {
            tokio::spawn(async move {
                done.notified().await;
                drop(guard);
            });
        }
    };
    let limit = RateLimitLayer::new(limiter.clone(), uploads(), one_client());
    let app = Router::new().route("/", get(handler)).layer(limit);
    assert_eq!(app.oneshot(request()).await.unwrap().status(), 200);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(left(&limiter, &uploads()).await, 2);
    done.notify_one();
    settle_in_background().await;
    assert_eq!(left(&limiter, &uploads()).await, 3);
}

/// A handler may serve requests that hold nothing.
#[tokio::test]
async fn a_guard_of_a_request_without_holds_keeps_nothing() {
    let ledger = Ledger::default();
    let limit = RateLimitLayer::new(ledger.limiter(), uploads(), one_client()).route("/exempt", Route::exempt());
    let handler = |guard: HoldGuard| async move { drop(guard) };
    let app = Router::new().route("/exempt", get(handler)).layer(limit).route("/outside", get(handler));
    for path in ["/exempt", "/outside"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 200);
    }
    assert_eq!(ledger.settlements(), []);
}

/// The guard of an outer middleware must not keep a hold of which the store has not said that it was made.
#[tokio::test]
async fn a_request_that_goes_away_before_its_verdict_leaves_nothing_to_its_guards() {
    let ledger = Ledger::slow();
    let bill = Arc::new(std::sync::Mutex::new(None));
    let keep = Arc::clone(&bill);
    let service = ServiceBuilder::new()
        .layer(layer(Ledger::default().limiter(), at_end))
        .map_request(move |request: Request| {
            *keep.lock().unwrap() = Some(request.extensions().get::<Bill>().unwrap().guard());
            request
        })
        .layer(layer(ledger.limiter(), at_end))
        .service_fn(|_: Request| async { Ok::<_, Infallible>(Response::new(Frames::of(["a"]))) });
    let mut response = tokio_test::task::spawn(service.oneshot(request()));
    tokio_test::assert_pending!(response.poll());
    assert!(bill.lock().unwrap().is_some());
    drop(response);
    settle_in_background().await;
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 1_000);
}
