//! HTTP and gRPC through the same layer, on one port.

use std::net::SocketAddr;

use axum::{Router, body::Body, routing::get};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tollgate::{GrpcStatus, Limiter, MemoryStore, PeerIp, ProblemJson, RateLimitLayer};
use tonic::{Code, service::Routes, transport::Endpoint};

use super::probe::{Probe, check, per_minute, refused, text};
use crate::support::http::{Connection, Http2, request, serve};

/// Serves `/watch` and the probe behind one layer; returns the address.
async fn app(limit: u64, probe: &Probe) -> SocketAddr {
    let limiter = Limiter::new(MemoryStore::new());
    let layer = RateLimitLayer::new(limiter, per_minute(limit), PeerIp::new());
    let layer = layer.with_rejection(GrpcStatus::default().otherwise(ProblemJson::default()));
    let calls: Router = Routes::new(probe.server()).into_axum_router();
    serve(calls.route("/watch", get(|| async { "watching" })).layer(layer)).await
}

/// A raw HTTP/2 call, without a gRPC client.
async fn post(address: SocketAddr, content_type: &str) -> Response<Incoming> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{address}/grpc.health.v1.Health/Check");
    let request = Request::post(uri).header("content-type", content_type).body(Body::from("\0\0\0\0\0")).unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test]
async fn law_11_http_and_grpc_spend_from_one_budget_and_get_rejections_of_their_own_kind() {
    let probe = Probe::default();
    let address = app(2, &probe).await;
    let mut http = Connection::open(address).await;
    let channel = Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap();
    let first = http.get("/watch").await;
    assert_eq!((first.status.as_u16(), first.text()), (200, "watching"));
    check(&channel).await.unwrap();

    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert!(text(status.metadata(), "grpc-retry-pushback-ms").is_some());
    let denied = http.get("/watch").await;
    assert_eq!((denied.status.as_u16(), &denied.json()["violated-policies"][0]), (429, &"p".into()));
    assert_eq!(denied.header("grpc-status"), None);
    assert_eq!(probe.calls(), 1);
}

#[tokio::test]
async fn a_denied_call_ends_with_its_headers() {
    let probe = Probe::default();
    let address = app(1, &probe).await;
    let passed = post(address, "application/grpc").await;
    assert!(!passed.body().is_end_stream());
    assert_eq!(passed.into_body().collect().await.unwrap().trailers().unwrap()["grpc-status"], "0");
    for content_type in ["application/grpc", "application/grpc+proto", "Application/gRPC+proto; charset=utf-8"] {
        let denied = post(address, content_type).await;
        assert_eq!(denied.status(), 200);
        assert!(denied.body().is_end_stream(), "END_STREAM is on the headers");
        assert_eq!(denied.headers()["content-type"], "application/grpc");
        assert_eq!(denied.headers()["grpc-status"], "8");
    }
    assert_eq!(probe.calls(), 1);
}

/// The content type alone is not a gRPC call: other clients read the HTTP status, and 200 would look like a success.
#[tokio::test]
async fn only_a_post_over_http_2_gets_a_grpc_rejection() {
    let address = app(1, &Probe::default()).await;
    post(address, "application/grpc").await;
    let headers = [("content-type", "application/grpc")];
    let mut http1 = Connection::open(address).await;
    for method in [Method::GET, Method::POST] {
        let denied = http1.send(request(method.clone(), "/grpc.health.v1.Health/Check", &headers)).await;
        assert_eq!(denied.status, 429, "{method} over HTTP/1.1");
        assert_eq!(denied.header("grpc-status"), None);
    }
    let denied = Http2::open(address).await.get("/grpc.health.v1.Health/Check", &headers).await;
    assert_eq!((denied.status.as_u16(), denied.header("grpc-status")), (429, None), "GET over HTTP/2");
    assert_eq!(post(address, "application/grpc").await.headers()["grpc-status"], "8");
}

/// gRPC-Web is another protocol, which only an inner layer might translate.
#[tokio::test]
async fn grpc_web_and_similar_content_types_get_the_http_rejection() {
    let address = app(1, &Probe::default()).await;
    post(address, "application/grpc").await;
    for content_type in
        ["application/grpc-web", "application/grpc-web-text+proto", "application/grpcfoo", "application/json", ""]
    {
        let denied = post(address, content_type).await;
        assert_eq!(denied.status(), 429, "{content_type}");
        assert_eq!(denied.headers()["content-type"], "application/problem+json");
        assert!(!denied.headers().contains_key("grpc-status"));
        assert!(!denied.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}
