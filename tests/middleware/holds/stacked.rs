//! Several layers around one service.

use axum::{Extension, Router, body::Body, routing::get};
use http::response::Parts;
use http_body_util::BodyExt;
use tollgate::middleware::{Bill, Settlement};
use tollgate::{Policy, RateLimitLayer, policy::HoldSettings, store::SettleAnswer::Settled};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, Ledger, at_end, left, one_client, request, tokens, uploads};

#[tokio::test]
async fn layers_share_the_bill_of_a_request() {
    let ledger = Ledger::default();
    let per_day = Policy::per_day("per-day", 5_000).unwrap().with_holds(HoldSettings::new());
    let limit = |policy: Policy, cost: u64| {
        RateLimitLayer::new(ledger.limiter(), policy, one_client()).with_cost(cost).with_settlement(at_end)
    };
    let handler = |Extension(bill): Extension<Bill>| async move {
        bill.set_cost(7);
        "hello"
    };
    let app = Router::new()
        .route("/", get(handler))
        .layer(limit(tokens(), 100))
        .layer(limit(per_day.clone(), 200))
        .layer(RateLimitLayer::new(ledger.limiter(), uploads(), one_client()));
    let response = app.oneshot(request()).await.unwrap();
    assert_eq!(ledger.settlements(), []);
    let left_of = async |policy: &Policy| left(&ledger.limiter(), policy).await;
    assert_eq!((left_of(&tokens()).await, left_of(&per_day).await, left_of(&uploads()).await), (900, 4_800, 2));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    assert_eq!(ledger.settlements().len(), 3);
    assert!(ledger.settlements().iter().all(|(_, settlement)| *settlement == Settled));
    assert_eq!((left_of(&tokens()).await, left_of(&per_day).await, left_of(&uploads()).await), (993, 4_993, 3));
}

/// What the outer layer holds ends too if the inner layer refuses the request.
#[tokio::test]
async fn a_refusal_of_an_inner_layer_is_a_response_of_the_outer_one() {
    let ledger = Ledger::default();
    let spent = Policy::per_minute("spent", 1).unwrap();
    let _ = ledger.limiter().check(super::CLIENT, &spent, 1).await.unwrap();
    let service = ServiceBuilder::new()
        .layer(
            RateLimitLayer::new(ledger.limiter(), tokens(), one_client())
                .with_cost(100)
                .with_settlement(
                    |response: &Parts| if response.status == 429 { Settlement::Nothing } else { Settlement::AtEnd },
                )
                .with_held_body(),
        )
        .layer(RateLimitLayer::new(ledger.limiter(), spent, one_client()))
        .layer(RateLimitLayer::new(ledger.limiter(), uploads(), one_client()).with_settlement(at_end).with_held_body())
        .service(service_fn(|_: http::Request<Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::<bytes::Bytes>::from("never")))
        }));
    let refused = service.oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(ledger.settlements(), [(0, Settled)]);
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 1_000);
}

/// A handler that reads the body into memory still answers with a body that carries the slot.
#[tokio::test]
async fn a_body_that_an_outer_layer_replaces_ends_with_the_one_that_it_drops() {
    let ledger = Ledger::default();
    let limit = RateLimitLayer::new(ledger.limiter(), uploads(), one_client());
    let app = Router::new()
        .route("/", get(|| async { Body::new(Frames::of(["a"]).then_stays_open()) }))
        .layer(limit)
        .layer(axum::middleware::map_response(|_: axum::response::Response| async { "replaced" }));
    let response = app.oneshot(request()).await.unwrap();
    assert_eq!(ledger.settlements(), [(0, Settled)]);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "replaced");
}
