//! Bodies of axum, hyper and tonic behind real connections, and clients that go away.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tollgate::{GrpcStatus, Limiter, RateLimitLayer, rejection::EmptyBody, store::SettleAnswer::Settled};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, Ledger, at_end, layer, left, one_client, tokens, uploads};
use crate::support::counting::within_10_seconds;
use crate::support::http::{Connection, Http2, request, serve};

/// Waits until this many slots of [`uploads`] are free.
async fn until_free(limiter: &Limiter, slots: u64) {
    for _ in 0..1_000 {
        if left(limiter, &uploads()).await == slots {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{} slots are free in place of {slots}", left(limiter, &uploads()).await);
}

/// Sends a request, and reads the response up to its first frame.
async fn begin(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n1\r\na\r\n") {
        let mut byte = [0];
        let read = within_10_seconds(stream.read(&mut byte)).await.unwrap();
        assert_eq!(read, 1, "{}", String::from_utf8_lossy(&text));
        text.extend(byte);
    }
    stream
}

#[tokio::test]
async fn a_client_of_axum_that_hangs_up_frees_its_slot() {
    let limiter = Ledger::default().limiter();
    let stream = || async { Body::new(Frames::of(["a"]).then_stays_open()) };
    let app = Router::new()
        .route("/stream", get(stream))
        .route("/text", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter.clone(), uploads(), one_client()));
    let address = serve(app).await;
    let (first, second) = (begin(address).await, begin(address).await);
    assert_eq!(left(&limiter, &uploads()).await, 1);
    drop(first);
    until_free(&limiter, 2).await;
    drop(second);
    until_free(&limiter, 3).await;

    // Connections that stay open give their slots back after each response.
    let mut connection = Connection::open(address).await;
    for method in [Method::GET, Method::HEAD, Method::GET, Method::HEAD] {
        assert_eq!(connection.send(request(method, "/text", &[])).await.status, 200);
        until_free(&limiter, 3).await;
    }
    let mut connection = Http2::open(address).await;
    for _ in 0..4 {
        assert_eq!(connection.get("/text", &[]).await.text(), "hello");
        until_free(&limiter, 3).await;
    }
}

#[tokio::test]
async fn hyper_sends_the_bodies_and_settles_them() {
    let ledger = Ledger::default();
    let handler = service_fn(|request: Request<Incoming>| async move {
        let body: BoxBody<Bytes, Infallible> = match request.uri().path() {
            "/stream" => Frames::of(["a"]).then_stays_open().map_err(|error| panic!("{error}")).boxed(),
            _ => Full::from("hello").boxed(),
        };
        Ok::<_, Infallible>(Response::new(body))
    });
    let limit = RateLimitLayer::new(ledger.limiter(), [uploads(), tokens()], one_client())
        .with_cost_of("tokens", 100)
        .with_rejection(EmptyBody::default())
        .with_settlement(at_end)
        .with_held_body();
    let service = ServiceBuilder::new().layer(limit).service(handler);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });

    let mut connection = Connection::open(address).await;
    assert_eq!(connection.get("/text").await.text(), "hello");
    until_free(&ledger.limiter(), 3).await;
    assert_eq!(ledger.settlements(), [(0, Settled), (100, Settled)]);

    let stream = begin(address).await;
    assert_eq!(left(&ledger.limiter(), &uploads()).await, 2);
    drop(stream);
    until_free(&ledger.limiter(), 3).await;
    assert_eq!(left(&ledger.limiter(), &tokens()).await, 800);
}

/// A gRPC response ends with its trailers, which have the status of the call.
#[tokio::test]
async fn the_trailers_of_tonic_pass_and_end_the_hold() {
    let ledger = Ledger::default();
    let handler = service_fn(|_: Request<tonic::body::Body>| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [Frame::data(Bytes::from("message")), Frame::trailers(trailers)];
        let body = StreamBody::new(tokio_stream_of(frames));
        Ok::<_, Infallible>(Response::new(tonic::body::Body::new(body)))
    });
    let limit = layer(ledger.limiter(), at_end).with_rejection(GrpcStatus::default());
    let call = || ServiceBuilder::new().layer(limit.clone()).service(handler).oneshot(Request::new(Default::default()));
    let collected = call().await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), "message");
    assert_eq!(ledger.settlements(), [(100, Settled)]);

    let mut body = call().await.unwrap().into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    drop(body);
    assert_eq!(ledger.settlements().len(), 2, "a call that goes away half way");
}

/// A stream of these frames.
fn tokio_stream_of(
    frames: impl IntoIterator<Item = Frame<Bytes>>,
) -> impl tonic::codegen::tokio_stream::Stream<Item = Result<Frame<Bytes>, tonic::Status>> {
    tonic::codegen::tokio_stream::iter(frames.into_iter().map(Ok).collect::<Vec<_>>())
}
