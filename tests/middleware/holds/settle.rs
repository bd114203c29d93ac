//! What the response decides.

use std::convert::Infallible;

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, StatusCode, response::Parts};
use http_body_util::BodyExt;
use tollgate::middleware::{Bill, Settlement};
use tollgate::{Policy, RateLimitLayer, Route, policy::HoldSettings, store::SettleAnswer::Settled};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, Ledger, at_end, layer, left, one_client, request, tokens};

async fn ok(_: Request<Body>) -> Result<Response<Frames>, Infallible> {
    Ok(Response::new(Frames::of(["a"])))
}

#[tokio::test]
async fn a_response_that_decides_is_settled_before_its_body_is_read() {
    for (settle, charged) in [(Settlement::Nothing, 0), (Settlement::Held, 100), (Settlement::Units(250), 250)] {
        let ledger = Ledger::default();
        let service = ServiceBuilder::new().layer(layer(ledger.limiter(), move |_: &Parts| settle)).service_fn(ok);
        let response = service.oneshot(request()).await.unwrap();
        assert_eq!(ledger.settlements(), [(charged, Settled)], "{settle:?}");
        drop(response);
        assert_eq!(ledger.settlements().len(), 1);
        assert_eq!(left(&ledger.limiter(), &tokens()).await, 1_000 - charged);
    }
}

#[tokio::test]
async fn a_handler_takes_the_bill_as_an_argument() {
    let ledger = Ledger::default();
    let charge = |bill: Bill| async move {
        bill.set_cost(7);
        "done"
    };
    let if_any = |bill: Option<Bill>| async move { bill.map_or("free", |_| "billed") };
    let routes = Router::new().route("/charge", get(charge)).route("/if-any", get(if_any));
    let settled = RateLimitLayer::new(ledger.limiter(), tokens(), one_client()).with_cost(100).with_settlement(at_end);
    let (billed, free) = (routes.clone().layer(settled), routes);
    let text = async |app: &Router, path: &str| {
        let response = app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(text(&billed, "/charge").await, (200, "done".to_owned()));
    assert_eq!(ledger.settlements(), [(7, Settled)]);
    assert_eq!(text(&billed, "/if-any").await, (200, "billed".to_owned()));
    assert_eq!(text(&free, "/if-any").await, (200, "free".to_owned()));
    let (status, message) = text(&free, "/charge").await;
    assert_eq!(status, 500);
    assert!(message.contains("call `.with_settlement(..)` on the layer, or take an Option<Bill>"), "{message}");
}

#[tokio::test]
async fn only_failed_logins_count() {
    let ledger = Ledger::default();
    let failed = |response: &Parts| match response.status {
        StatusCode::UNAUTHORIZED => Settlement::Held,
        _ => Settlement::Nothing,
    };
    let logins = Policy::per_minute("logins", 2).unwrap().with_holds(HoldSettings::new());
    let limit = RateLimitLayer::new(ledger.limiter(), logins, one_client()).with_settlement(failed);
    let login = service_fn(|request: Request<Body>| async move {
        let status = if request.uri().path() == "/right" { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        Ok::<_, Infallible>(Response::builder().status(status).body(Body::empty()).unwrap())
    });
    let service = ServiceBuilder::new().layer(limit).service(login);
    let mut statuses = Vec::new();
    for path in ["/right", "/right", "/right", "/wrong", "/right", "/wrong", "/right"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 401, 200, 401, 429]);
}

/// The excess was not there when it was charged: later requests wait until it has left the window.
#[tokio::test]
async fn a_charge_above_what_was_held_and_left_refuses_later_requests() {
    let ledger = Ledger::default();
    let service =
        ServiceBuilder::new().layer(layer(ledger.limiter(), |_: &Parts| Settlement::Units(5_000))).service_fn(ok);
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), 200);
    let refused = service.oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "60");
}

#[tokio::test]
async fn fields_show_the_units_that_are_held() {
    let ledger = Ledger::default();
    let service = ServiceBuilder::new().layer(layer(ledger.limiter(), at_end)).service_fn(ok);
    let first = service.clone().oneshot(request()).await.unwrap();
    let second = service.oneshot(request()).await.unwrap();
    assert_eq!(first.headers()["ratelimit-policy"], r#""tokens";q=1000;w=60"#);
    for (response, left) in [(first, 900), (second, 800)] {
        let field = response.headers()["ratelimit"].to_str().unwrap();
        assert!(field.starts_with(&format!("\"tokens\";r={left};")), "{field}");
    }
}

#[tokio::test]
async fn policies_without_holds_are_charged_in_the_same_check_and_stay_charged() {
    let ledger = Ledger::default();
    let requests = Policy::per_minute("requests", 2).unwrap();
    let limit = RateLimitLayer::new(ledger.limiter(), [requests.clone(), tokens()], one_client())
        .with_cost_of("tokens", 600)
        .with_settlement(|_: &Parts| Settlement::Nothing)
        .with_held_body();
    let service = ServiceBuilder::new().layer(limit).service_fn(ok);
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), 200);
    assert_eq!(ledger.settlements(), [(0, Settled)], "one hold");
    assert_eq!((left(&ledger.limiter(), &requests).await, left(&ledger.limiter(), &tokens()).await), (1, 1_000));
}

#[tokio::test]
async fn a_denied_check_holds_and_settles_nothing() {
    let ledger = Ledger::default();
    let requests = Policy::per_minute("requests", 1).unwrap();
    let limit = RateLimitLayer::new(ledger.limiter(), [requests, tokens()], one_client())
        .with_settlement(at_end)
        .with_held_body();
    let service = ServiceBuilder::new().layer(limit).service_fn(ok);
    drop(service.clone().oneshot(request()).await.unwrap());
    assert_eq!(ledger.settlements().len(), 1);
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 429);
    assert_eq!(ledger.settlements().len(), 1);
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 999);
}

/// A handler that takes a bill must not fail because the layer has nothing to hold.
#[tokio::test]
async fn each_forwarded_request_has_a_bill_and_exempt_ones_hold_nothing() {
    let ledger = Ledger::default();
    let limit = layer(ledger.limiter(), at_end).route("/exempt", Route::exempt()).route("/free", Route::new().cost(0));
    let handler = service_fn(|request: Request<Body>| async move {
        request.extensions().get::<Bill>().expect("a bill").set_cost(5);
        Ok::<_, Infallible>(Response::new(Frames::of(["a"])))
    });
    let service = ServiceBuilder::new().layer(limit).service(handler);
    for path in ["/exempt", "/free"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        drop(service.clone().oneshot(request).await.unwrap());
        assert_eq!(ledger.settlements(), [], "{path}");
    }
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 1_000);
}

#[tokio::test]
async fn a_shadow_policy_holds_what_fits_and_refuses_nothing() {
    let ledger = Ledger::default();
    let limit = layer(ledger.limiter(), at_end).with_cost(600).with_shadow(true);
    let service = ServiceBuilder::new().layer(limit).service_fn(ok);
    let first = service.clone().oneshot(request()).await.unwrap();
    let second = service.oneshot(request()).await.unwrap();
    assert_eq!(second.status(), 200);
    assert!(!second.headers().contains_key("ratelimit"));
    drop((first, second));
    assert_eq!(ledger.settlements(), [(600, Settled)], "the second did not fit");
}
