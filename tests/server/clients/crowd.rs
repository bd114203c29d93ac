//! Many calls of one tenant wait behind a throttle, and another tenant uses the same client meanwhile.
//!
//! Clients have few places: a channel of tonic has 1 024. A call that waits for its turn must take none of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::{Router, http::StatusCode, routing::get};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::task::JoinSet;
use tollgate::{Algorithm, Limiter, MemoryStore, Policy, ThrottleLayer};
use tower::{
    BoxError, Layer, Service, ServiceExt, balance::p2c::Balance, buffer::Buffer, discover::ServiceList,
    limit::ConcurrencyLimit, load::Constant,
};

use crate::support::{asserts_times, http::serve, print_line};

/// The calls of the other tenant whose times are measured.
const MEASURED: usize = 300;

async fn server() -> String {
    let app = Router::new().route("/", get(|| async { StatusCode::NO_CONTENT }));
    format!("http://{}/", serve(app).await)
}

/// The 99th percentile of the times of calls, one after the other. Each is made within a second.
async fn p99<S, Req, Body>(client: &S, request: impl Fn() -> Req) -> Duration
where
    S: Service<Req, Response = Response<Body>, Error = BoxError> + Clone,
{
    let mut times = Vec::new();
    for _ in 0..MEASURED {
        let start = Instant::now();
        let response = client.clone().oneshot(request()).await.expect("a tenant with an untouched quota is served");
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times[MEASURED * 99 / 100]
}

/// Measures a tenant on an empty client, and beside `crowd` calls of another tenant that wait.
async fn beside_a_crowd<S, Req, Body>(name: &str, inner: S, request: impl Fn() -> Req, crowd: usize)
where
    S: Service<Req, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    Req: Send + 'static,
    Body: Send + 'static,
{
    let limiter = Limiter::new(MemoryStore::new()).with_max_waiters(crowd, 2 * crowd);
    let slow = Policy::per_minute("slow", 1).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1);
    let ample = Policy::per_second("ample", 1_000_000).unwrap();
    let noisy =
        ThrottleLayer::new(limiter.clone(), slow.clone(), "noisy").with_max_wait(Duration::MAX).layer(inner.clone());
    let quiet = ThrottleLayer::new(limiter.clone(), ample, "quiet").with_max_wait(Duration::from_secs(1)).layer(inner);
    let empty = p99(&quiet, &request).await;
    assert!(limiter.check("noisy", &slow, 1).await.unwrap().is_allowed());
    let mut waiting = JoinSet::new();
    let polled = Arc::new(AtomicUsize::new(0));
    for _ in 0..crowd {
        let (call, polled) = (noisy.clone().oneshot(request()), Arc::clone(&polled));
        waiting.spawn(async move {
            polled.fetch_add(1, Ordering::Relaxed);
            drop(call.await);
        });
    }
    // The test has one thread, so a call that is counted has taken its place in the queue.
    while polled.load(Ordering::Relaxed) < crowd {
        tokio::task::yield_now().await;
    }
    let crowded = p99(&quiet, &request).await;
    print_line(&format!("{name}: p99 {empty:?} on an empty client, {crowded:?} beside {crowd} calls that wait"));
    let made = std::iter::from_fn(|| waiting.try_join_next()).count();
    assert!(made < 10, "{made} calls of a tenant with one call a minute were made");
    assert!(!asserts_times() || crowded < empty * 4 + Duration::from_millis(5), "{name}: {crowded:?}");
}

async fn all_clients(crowd: usize) {
    let url = server().await;
    let plain = || Request::get(&url).body(Full::<Bytes>::default()).unwrap();

    let channel = tonic::transport::Endpoint::from_shared(url.clone()).unwrap().connect().await.unwrap();
    let call = || Request::get("/").body(tonic::body::Body::empty()).unwrap();
    beside_a_crowd("a channel of tonic", channel, call, crowd).await;

    for (name, is_http2) in [("hyper, HTTP/1.1", false), ("hyper, HTTP/2", true)] {
        let client = Client::builder(TokioExecutor::new()).http2_only(is_http2).build_http::<Full<Bytes>>();
        beside_a_crowd(name, client, plain, crowd).await;
    }

    let builder = || reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    for (name, builder) in
        [("reqwest, HTTP/1.1", builder().http1_only()), ("reqwest, HTTP/2", builder().http2_prior_knowledge())]
    {
        let client = builder.build().unwrap();
        let call = || client.get(&url).build().unwrap();
        let inner = client.clone().map_response(Response::<reqwest::Body>::from);
        beside_a_crowd(name, inner, call, crowd).await;
    }

    let client = || Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    beside_a_crowd("tower's Buffer", Buffer::new(client(), 16), plain, crowd).await;
    beside_a_crowd("tower's ConcurrencyLimit", ConcurrencyLimit::new(client(), 4), plain, crowd).await;
    let servers = (0..3).map(|load| Constant::new(client(), load)).collect::<Vec<_>>();
    let balance = Balance::new(ServiceList::new::<Request<Full<Bytes>>>(servers));
    beside_a_crowd("tower's Balance", Buffer::new(balance, 16), plain, crowd).await;
}

#[tokio::test]
async fn a_crowd_of_calls_that_wait_takes_no_place_of_a_client() {
    all_clients(2_000).await;
}

#[tokio::test]
#[ignore = "long"]
async fn long_a_hundred_thousand_calls_that_wait_take_no_place_of_a_client() {
    all_clients(100_000).await;
}
