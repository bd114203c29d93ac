//! The layer compiles and limits in every place where axum, tower and hyper accept a layer.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::{Router, extract::Request, response::Response, routing::get};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::net::TcpListener;
use tollgate::{GlobalKey, RateLimitLayer};
use tower::{Layer, ServiceBuilder, service_fn, util::option_layer};

use crate::support::counting::AnswerKind;
use crate::support::http::{Connection, get as fetch, request, send};

fn limit() -> RateLimitLayer<GlobalKey> {
    AnswerKind::Pending.layer(1)
}

fn routes() -> Router {
    Router::new().route("/", get(|| async {}))
}

/// Asserts that one request passes and the next one is denied.
async fn assert_limited(app: Router, path: &str) {
    assert_eq!(fetch(&app, path).await.status, 200);
    assert_eq!(fetch(&app, path).await.status, 429);
}

#[tokio::test]
async fn router_layer_limits_routes_and_fallback() {
    assert_limited(routes().layer(limit()), "/").await;
    let app = routes().layer(limit());
    assert_eq!(fetch(&app, "/nowhere").await.status, 404);
    assert_eq!(fetch(&app, "/nowhere").await.status, 429);
}

#[tokio::test]
async fn route_layer_limits_routes_and_leaves_the_fallback() {
    assert_limited(routes().route_layer(limit()), "/").await;
    let app = routes().route_layer(limit());
    for _ in 0..3 {
        assert_eq!(fetch(&app, "/nowhere").await.status, 404);
    }
}

#[tokio::test]
async fn method_router_layer_limits_that_route() {
    let app = routes().route("/limited", get(|| async {}).layer(limit()));
    for _ in 0..3 {
        assert_eq!(fetch(&app, "/").await.status, 200);
    }
    assert_limited(app, "/limited").await;
}

#[tokio::test]
async fn nested_and_merged_routers_are_limited() {
    assert_limited(Router::new().nest("/api", routes().layer(limit())), "/api").await;
    assert_limited(Router::new().nest("/api", routes()).layer(limit()), "/api").await;
    assert_limited(Router::new().nest_service("/api", routes().layer(limit())), "/api").await;
    assert_limited(Router::new().merge(routes().layer(limit())), "/").await;
}

#[tokio::test]
async fn works_with_service_builder() {
    assert_limited(routes().layer(ServiceBuilder::new().layer(limit())), "/").await;
    assert_limited(routes().layer((limit(),)), "/").await;
}

#[tokio::test]
async fn works_with_option_layer() {
    assert_limited(routes().layer(option_layer(Some(limit()))), "/").await;
    let app = routes().layer(option_layer(None::<RateLimitLayer<GlobalKey>>));
    for _ in 0..3 {
        assert_eq!(fetch(&app, "/").await.status, 200);
    }
}

#[tokio::test]
async fn works_around_a_whole_router() {
    let app = limit().layer(routes());
    assert_eq!(send(&app, Request::new(Body::empty())).await.status, 200);
    assert_eq!(send(&app, Request::new(Body::empty())).await.status, 429);
    let served = Router::new().fallback_service(limit().layer(routes()));
    assert_limited(served, "/").await;
}

#[tokio::test]
async fn works_in_front_of_a_service_function() {
    let hello = service_fn(|_: Request| async { Ok::<_, Infallible>(Response::new(Body::from("hello"))) });
    let service = limit().layer(hello);
    assert_eq!(send(&service, Request::new(Body::empty())).await.text(), "hello");
    assert_eq!(send(&service, Request::new(Body::empty())).await.status, 429);
}

/// Without axum: the request body of hyper, and a response body of bytes.
#[tokio::test]
async fn works_with_plain_hyper() {
    let hello = service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
    });
    let service = TowerToHyperService::new(ServiceBuilder::new().layer(limit()).service(hello));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone()));
        }
    });
    let passed = Connection::open(address).await.get("/").await;
    assert_eq!((passed.status, passed.text()), (200.try_into().unwrap(), "hello"));
    assert_eq!(passed.header("ratelimit").as_deref(), Some(r#""all";r=0;t=60"#));
    let denied = Connection::open(address).await.send(request(http::Method::GET, "/", &[])).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["all"]));
}
