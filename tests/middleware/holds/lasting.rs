//! Answers that take longer than the time-to-live of their holds.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use tokio::time::sleep;
use tollgate::{Limiter, ManualClock, MemoryStore, clock::TokioClock, middleware::Bill};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, at_end, layer, left, request, tokens};

/// A model that thinks for two minutes, and a client that reads its answer for eight more. A hold lasts a minute.
#[tokio::test(start_paused = true)]
async fn law_15_the_units_of_an_answer_that_lasts_are_held_until_its_end_and_then_settled() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new()));
    let thinks = |request: Request<Body>| async move {
        sleep(Duration::from_secs(120)).await;
        request.extensions().get::<Bill>().unwrap().set_cost(20);
        Ok::<_, Infallible>(Response::new(Frames::of(["an answer"]).then_stays_open()))
    };
    let service = ServiceBuilder::new().layer(layer(limiter.clone(), at_end)).service(service_fn(thinks));
    let response = tokio::spawn(service.oneshot(request()));
    for _ in 0..10 {
        sleep(Duration::from_secs(60)).await;
        assert_eq!(left(&limiter, &tokens()).await, 900, "the estimate is held");
    }
    drop(response.await.unwrap());
    assert_eq!(left(&limiter, &tokens()).await, 980, "the bill is charged");
}

/// The clock of the store has gone on without the process, as if it had been suspended: its hold was charged.
#[tokio::test(start_paused = true)]
async fn the_bill_of_a_request_that_has_lost_its_hold_is_charged() {
    for (cost, charged) in [(300, 300), (30, 100)] {
        let clock = ManualClock::default();
        let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
        let answers = move |request: Request<Body>| async move {
            request.extensions().get::<Bill>().unwrap().set_cost(cost);
            Ok::<_, Infallible>(Response::new(Frames::of(["an answer"])))
        };
        let service = ServiceBuilder::new().layer(layer(limiter.clone(), at_end)).service(service_fn(answers));
        let response = service.oneshot(request()).await.unwrap();
        clock.advance(Duration::from_secs(60));
        drop(response);
        assert_eq!(left(&limiter, &tokens()).await, 1_000 - charged);
    }
}
