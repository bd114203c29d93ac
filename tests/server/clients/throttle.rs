//! Clients behind `ThrottleLayer`, in front of a server behind `RateLimitLayer`: they know the server's limit from its
//! fields alone, and it never refuses them twice.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::middleware::{Next, from_fn};
use axum::{Router, extract::Request, routing::get};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tollgate::{
    GlobalKey, HeaderStyle, Key, Limiter, MemoryStore, Policy, RateLimitLayer, ThrottleLayer, throttle::Throttled,
};
use tower::{Layer, Service, ServiceExt};

use super::server::Server;
use crate::support::{connect, http::serve, redis_server::RedisServer};

type Statuses = Arc<Mutex<Vec<StatusCode>>>;

/// A server that admits three requests a second. Returns its URL, and the statuses of its responses.
async fn three_per_second(style: HeaderStyle) -> (String, Statuses) {
    let statuses = Statuses::default();
    let log = Arc::clone(&statuses);
    let limiter = Limiter::new(MemoryStore::new());
    let limit = RateLimitLayer::new(limiter, Policy::per_second("server", 3).unwrap(), GlobalKey).with_headers(style);
    let app = Router::new().route("/", get(|| async { "passed" })).layer(limit);
    let app = app.layer(from_fn(move |request: Request, next: Next| {
        let log = Arc::clone(&log);
        async move {
            let response = next.run(request).await;
            log.lock().unwrap().push(response.status());
            response
        }
    }));
    (format!("http://{}/", serve(app).await), statuses)
}

/// A layer with a limit of its own that is far above the limit of the server.
fn throttle() -> ThrottleLayer {
    ThrottleLayer::new(Limiter::new(MemoryStore::new()), Policy::per_second("own", 1_000).unwrap(), "server")
}

async fn reqwest_client_is_never_refused(style: HeaderStyle) {
    let (url, statuses) = three_per_second(style).await;
    let mut client = throttle()
        .with_key(|request: &reqwest::Request| Key::from(request.url().host_str().unwrap()))
        .layer(reqwest::Client::new());
    let started = Instant::now();
    for _ in 0..7 {
        let request = client.get_ref().get(&url).build().unwrap();
        let response = client.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.text().await.unwrap(), "passed", "{style:?}");
    }
    assert!(started.elapsed() > Duration::from_secs(2), "{style:?}: {:?}", started.elapsed());
    assert_eq!(*statuses.lock().unwrap(), [StatusCode::OK; 7], "{style:?}");
}

#[tokio::test]
async fn a_throttled_reqwest_client_is_never_refused() {
    tokio::join!(
        reqwest_client_is_never_refused(HeaderStyle::Draft11),
        reqwest_client_is_never_refused(HeaderStyle::Draft07),
        reqwest_client_is_never_refused(HeaderStyle::Draft06),
        reqwest_client_is_never_refused(HeaderStyle::Draft03),
        reqwest_client_is_never_refused(HeaderStyle::EnvoyCompat),
        reqwest_client_is_never_refused(HeaderStyle::XRateLimitDelta),
        reqwest_client_is_never_refused(HeaderStyle::XRateLimitEpoch),
    );
}

#[tokio::test]
async fn a_throttled_client_of_hyper_util_is_never_refused() {
    let (url, statuses) = three_per_second(HeaderStyle::Draft11).await;
    let client = throttle().layer(Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>());
    for _ in 0..7 {
        let request = http::Request::get(&url).body(Full::default()).unwrap();
        let response = client.clone().oneshot(request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "passed");
    }
    assert_eq!(*statuses.lock().unwrap(), [StatusCode::OK; 7]);
}

#[tokio::test]
async fn a_throttled_reqwest_client_obeys_retry_after_of_a_429_and_of_a_503() {
    let wait = Duration::from_secs(1);
    for (server, status) in [(Server::spent(wait).await, 429), (Server::down(wait).await, 503)] {
        let mut client = throttle().layer(reqwest::Client::new());
        for status in [status, 200] {
            let request = client.get_ref().get(server.url()).build().unwrap();
            assert_eq!(client.ready().await.unwrap().call(request).await.unwrap().status(), status);
        }
        server.assert_waited_for_retry_after(status);
    }
}

#[tokio::test]
async fn a_call_that_cannot_wait_for_retry_after_is_not_made() {
    let server = Server::spent(Duration::from_secs(60)).await;
    let client = throttle().layer(reqwest::Client::new());
    let get = || client.clone().oneshot(client.get_ref().get(server.url()).build().unwrap());
    assert_eq!(get().await.unwrap().status(), 429);
    let error = get().await.unwrap_err();
    let retry_after = error.downcast_ref::<Throttled>().unwrap().retry_after().unwrap();
    assert!((50..=60).contains(&retry_after.as_secs()), "{retry_after:?}");
    assert_eq!(server.statuses(), [429]);
}

/// Two processes with stores of their own. The upstream refuses the first process.
#[tokio::test]
async fn a_pause_is_shared_through_redis() {
    let redis = RedisServer::start();
    let server = Server::spent(Duration::from_secs(60)).await;
    let process = || {
        let limiter = Limiter::new(connect(&redis.url()));
        ThrottleLayer::new(limiter, Policy::per_second("own", 1_000).unwrap(), "server")
            .with_shared_pauses()
            .layer(reqwest::Client::new())
    };
    let (first, second) = (process(), process());
    let request = || first.get_ref().get(server.url()).build().unwrap();
    assert_eq!(first.clone().oneshot(request()).await.unwrap().status(), 429);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let error = second.oneshot(request()).await.unwrap_err();
    let retry_after = error.downcast_ref::<Throttled>().unwrap().retry_after().unwrap();
    assert!((50..=60).contains(&retry_after.as_secs()), "{retry_after:?}");
    assert_eq!(server.statuses(), [429]);
}

#[tokio::test]
async fn an_error_of_reqwest_passes_through() {
    let client = throttle().layer(reqwest::Client::new());
    let address = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let request = client.get_ref().get(format!("http://{address}/")).build().unwrap();
    let error = client.oneshot(request).await.unwrap_err();
    assert!(error.downcast_ref::<reqwest::Error>().unwrap().is_connect(), "{error}");
}
