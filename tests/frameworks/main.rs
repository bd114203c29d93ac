//! The programs of `docs/without-tower.md`, with six requests each: five pass, the sixth is refused with its fields.
#![allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::unwrap_used)]

use std::{fs, path::Path};

// The page shows the programs, which are 80 columns wide.
#[rustfmt::skip]
mod actix;
#[rustfmt::skip]
mod lambda;
#[rustfmt::skip]
mod lambda_axum;

use tollgate::{ErrorKind, Limiter, ManualClock, MemoryStore, Policy, store::FailingStore};
use tower::ServiceExt;

const PAGE: &str = include_str!("../../docs/without-tower.md");

fn limiter() -> Limiter {
    Limiter::new(MemoryStore::new().with_clock(ManualClock::default()))
}

fn policy() -> Policy {
    Policy::per_minute("per-client", 5).unwrap()
}

#[actix_web::test]
async fn actix_web_refuses_the_sixth_request_of_an_address_with_its_fields() {
    use actix_web::{
        App,
        http::header::HeaderMap,
        middleware::from_fn,
        test::{TestRequest, call_service, init_service, read_body},
        web::{Data, get},
    };

    let app = App::new()
        .app_data(Data::new(actix::Limit { limiter: limiter(), policy: policy() }))
        .wrap(from_fn(actix::limit))
        .route("/", get().to(async || "hello"));
    let app = init_service(app).await;
    let request = |address: &str| TestRequest::get().peer_addr(address.parse().unwrap()).to_request();
    let field = |headers: &HeaderMap, name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());

    for left in (0..5).rev() {
        let response = call_service(&app, request("203.0.113.7:4711")).await;
        assert_eq!(response.status().as_u16(), 200);
        let expected = format!(r#""per-client";r={left};t=60"#);
        assert_eq!(field(response.headers(), "ratelimit"), Some(expected));
        assert_eq!(read_body(response).await, "hello");
    }
    let denied = call_service(&app, request("203.0.113.7:4712")).await;
    assert_eq!(denied.status().as_u16(), 429);
    assert_eq!(field(denied.headers(), "ratelimit").as_deref(), Some(r#""per-client";r=0;t=60"#));
    assert_eq!(field(denied.headers(), "ratelimit-policy").as_deref(), Some(r#""per-client";q=5;w=60"#));
    assert_eq!(field(denied.headers(), "retry-after").as_deref(), Some("60"));
    assert_eq!(read_body(denied).await, "rate limit exceeded: per-client; retry after 60s");
    assert_eq!(call_service(&app, request("203.0.113.8:4711")).await.status().as_u16(), 200, "another client");
}

#[actix_web::test]
async fn actix_web_responds_to_more_requests_than_the_store_can_check_with_503_and_the_wait() {
    use actix_web::{
        App,
        middleware::from_fn,
        test::{TestRequest, call_service, init_service, read_body},
        web::Data,
    };

    let store = FailingStore::new();
    store.fail(ErrorKind::Overloaded);
    let limit = actix::Limit { limiter: Limiter::new(store), policy: policy() };
    let app = init_service(App::new().app_data(Data::new(limit)).wrap(from_fn(actix::limit))).await;
    let request = TestRequest::get().peer_addr("203.0.113.7:4711".parse().unwrap()).to_request();
    let response = call_service(&app, request).await;
    assert_eq!(response.status().as_u16(), 503);
    for (name, expected) in [("retry-after", "1"), ("cache-control", "no-store")] {
        assert_eq!(response.headers().get(name).map(|value| value.to_str().unwrap()), Some(expected), "{name}");
    }
    assert_eq!(read_body(response).await, "rate limiter unavailable; retry after 1s");
}

/// The response is that of the handler, and tells how many requests are left.
fn assert_passes<B>(response: &tollgate::http::Response<B>, left: u64) {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["ratelimit"], format!(r#""per-client";r={left};t=60"#));
}

/// A request to an HTTP API of API Gateway, as the function receives it.
fn event(address: &str) -> lambda_http::Request {
    let event = format!(
        r#"{{
            "version": "2.0", "routeKey": "$default", "rawPath": "/", "rawQueryString": "",
            "headers": {{"host": "example.org"}}, "isBase64Encoded": false,
            "requestContext": {{
                "http": {{"method": "GET", "path": "/", "protocol": "HTTP/1.1", "sourceIp": "{address}"}},
                "timeEpoch": 0
            }}
        }}"#
    );
    lambda_http::request::from_str(&event).unwrap()
}

#[tokio::test]
async fn a_function_on_lambda_refuses_the_sixth_request_of_an_address_with_its_fields() {
    let (limiter, policy) = (limiter(), policy());
    let send = async |address| lambda::handle(&limiter, &policy, event(address)).await.unwrap();

    for left in (0..5).rev() {
        assert_passes(&send("203.0.113.7").await, left);
    }
    let denied = send("203.0.113.7").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["ratelimit"], r#""per-client";r=0;t=60"#);
    assert_eq!(denied.headers()["ratelimit-policy"], r#""per-client";q=5;w=60"#);
    assert_eq!(denied.headers()["retry-after"], "60");
    assert_eq!(denied.headers()["content-type"], "application/problem+json");
    assert_eq!(send("203.0.113.8").await.status(), 200, "another client");
}

#[tokio::test]
async fn a_router_of_axum_on_lambda_has_the_layer_and_a_key_from_the_event() {
    let app = lambda_axum::app(limiter()).unwrap();
    let send = async |address| app.clone().oneshot(event(address)).await.unwrap();

    for left in (0..5).rev() {
        assert_passes(&send("203.0.113.7").await, left);
    }
    let denied = send("203.0.113.7").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["retry-after"], "60");
    assert_eq!(send("203.0.113.8").await.status(), 200, "another client");
}

/// The blocks of Rust on the page.
fn blocks() -> Vec<&'static str> {
    PAGE.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_page_shows_the_programs_that_these_tests_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["actix.rs", "lambda.rs", "lambda_axum.rs"] {
        let program = fs::read_to_string(folder.join(name)).unwrap();
        assert!(blocks().contains(&program.as_str()), "docs/without-tower.md differs from {name}: copy the program");
    }
}
