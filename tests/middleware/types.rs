//! Types: the layer can be named, has its auto traits, and needs no bounds on structs.

use std::fmt::Debug;

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, request::Parts};
use tollgate::middleware::{RateLimit, ResponseFuture};
use tollgate::rejection::{Denial, Rejection};
use tollgate::{GlobalKey, Key, KeyExtractor, Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, key::KeyError};
use tower::Layer;

use crate::support::{counting::AnswerKind, http::get as fetch};

fn assert_send_sync_clone<T: Send + Sync + Clone + 'static>(_: &T) {}
fn assert_send<T: Send>(_: &T) {}
fn assert_debug<T: Debug>(_: &T) {}

/// An extractor and rejection without `Clone` and `Debug`.
struct Unclonable;

impl KeyExtractor for Unclonable {
    fn extract(&self, _: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(Key::from("all")))
    }
}

impl Rejection<Body> for Unclonable {
    fn reject(&self, _: &Parts, denial: &Denial) -> Response<Body> {
        let mut response = Response::new(Body::from("no"));
        *response.status_mut() = denial.status();
        response
    }
}

fn unclonable() -> RateLimitLayer<Unclonable, Unclonable> {
    let policy = Policy::per_minute("all", 1).unwrap();
    RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, Unclonable).with_rejection(Unclonable)
}

#[test]
fn service_is_send_sync_clone() {
    let layer = unclonable();
    let service = layer.layer(());
    assert_send_sync_clone(&layer);
    assert_send_sync_clone(&service);
    assert_debug(&layer);
    assert_debug(&service);
}

#[tokio::test]
async fn extractor_and_rejection_need_not_be_clone() {
    let app = Router::new().route("/", get(|| async {})).layer(unclonable().fail_closed().with_cost(1));
    assert_eq!(fetch(&app, "/").await.status, 200);
    assert_eq!(fetch(&app, "/").await.text(), "no");
}

/// A struct with a [`RateLimitLayer`] needs no bounds.
struct Wrapper<K, R> {
    layer: RateLimitLayer<K, R>,
}

impl<K, R> Clone for Wrapper<K, R> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone() }
    }
}

impl<S: Clone, K, R> Layer<S> for Wrapper<K, R> {
    type Service = RateLimit<S, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        self.layer.layer(inner)
    }
}

struct App {
    per_client: RateLimitLayer<PeerIp>,
    global: RateLimitLayer<GlobalKey>,
    any: RateLimitLayer<Box<dyn KeyExtractor>>,
    own: Wrapper<Unclonable, Unclonable>,
    answer: fn(&Parts, &Denial) -> Response<Body>,
}

#[tokio::test]
async fn layer_is_nameable() {
    fn teapot(_: &Parts, _: &Denial) -> Response<Body> {
        Response::builder().status(418).body(Body::empty()).unwrap()
    }
    let limiter = AnswerKind::Ready.limiter();
    let policy = |name: &str| Policy::per_minute(name, 1).unwrap();
    let app = App {
        per_client: RateLimitLayer::new(limiter.clone(), policy("per-client"), PeerIp::new()),
        global: RateLimitLayer::new(limiter.clone(), policy("global"), GlobalKey),
        any: RateLimitLayer::new(limiter, policy("any"), Box::new(|_: &Parts| Key::from("any")) as _),
        own: Wrapper { layer: unclonable() },
        answer: teapot,
    };
    let any: RateLimitLayer<_, fn(&Parts, &Denial) -> Response<Body>> = app.any.with_rejection(app.answer);
    let router = Router::new()
        .route("/per-client", get(|| async {}).layer(app.per_client))
        .route("/global", get(|| async {}).layer(app.global))
        .route("/any", get(|| async {}).layer(any))
        .route("/own", get(|| async {}).layer(app.own));
    for (path, first, second) in
        [("/per-client", 400, 400), ("/global", 200, 429), ("/any", 200, 418), ("/own", 200, 429)]
    {
        assert_eq!(fetch(&router, path).await.status, first, "{path}");
        assert_eq!(fetch(&router, path).await.status, second, "{path}");
    }
}

/// The body of axum is not `Sync`; the response future must be `Send` nevertheless.
#[test]
fn response_future_is_send_with_a_body_that_is_not_sync() {
    type Route = axum::routing::Route;
    type Inner = <Route as tower::Service<Request<Body>>>::Future;
    fn assert_future_is_send<T: Send>() {}
    assert_future_is_send::<ResponseFuture<Route, Inner, Box<dyn KeyExtractor>, Unclonable, Body, Body>>();

    let limiter = Limiter::new(MemoryStore::new());
    let check = limiter.check("key", &Policy::per_second("all", 1).unwrap(), 1);
    assert_send(&check);
}
