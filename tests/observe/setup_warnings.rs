//! Warnings about the setup: each once, with the remedy.

use std::net::SocketAddr;

use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use axum::http::{Method, Request};
use axum::{Router, routing::get};
use tollgate::{
    ApiKey, ClientIp, GlobalKey, HeaderKey, KeyExtractor, Limiter, MatchedPathKey, MemoryStore, MissingKey, PeerIp,
    Policy, RateLimitLayer, Route, key::KeyOrigin, observe::Tracing, rejection::Rejection,
};
use tracing::Level;

use super::recorded;
use crate::support::http::{get as fetch, get_with, request, send};
use crate::support::log::Log;
use crate::support::recorder::{Recorder, assert_warnings};
use crate::support::{DownStore, per_minute};

#[tokio::test]
async fn law_13_a_full_memory_store_of_the_local_fallback_warns() {
    for observer_first in [true, false] {
        let (recorder, memory) = (Recorder::default(), MemoryStore::with_capacity(10).unwrap());
        let limiter = Limiter::new(DownStore);
        let limiter = if observer_first {
            limiter.with_observer(recorder.clone()).with_local_fallback(memory, 1)
        } else {
            limiter.with_local_fallback(memory, 1).with_observer(recorder.clone())
        };
        for key in 0..20_u64 {
            let _ = limiter.check(key, &per_minute("p", 10), 1).fail_local().await.unwrap();
        }
        assert_warnings(&recorder.take().warnings, &[("store_full", "room for 10 keys")]);
    }
}

/// A policy that no test exhausts.
fn wide() -> Policy {
    per_minute("p", 1_000_000)
}

fn app<K, R>(layer: RateLimitLayer<K, R>) -> Router
where
    K: KeyExtractor,
    R: Rejection<axum::body::Body>,
{
    Router::new().route("/", get(|| async {})).route("/search", get(|| async {}).post(|| async {})).layer(layer)
}

fn from(peer: [u8; 4], headers: &[(&str, &str)]) -> Request<axum::body::Body> {
    let mut request = request(Method::GET, "/", headers);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 1))));
    request
}

#[tokio::test]
async fn a_forwarding_header_with_a_key_by_peer_address_warns_once() {
    for header in ["forwarded", "x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip"] {
        let keys: [Box<dyn KeyExtractor>; 2] = [Box::new(PeerIp::new()), Box::new(ClientIp::peer())];
        for key in keys {
            let (limiter, recorder) = recorded();
            let layer = RateLimitLayer::new(limiter, wide(), (key, MatchedPathKey));
            let app = app(layer.clone());
            // After two addresses, no request is inspected for another one, but still for the header.
            for last in [7, 8, 7] {
                send(&app, from([203, 0, 113, last], &[])).await;
            }
            assert_eq!(recorder.take().warnings, []);
            for _ in 0..3 {
                send(&app, from([203, 0, 113, 7], &[(header, "for=198.51.100.1")])).await;
            }
            // A derived layer does not warn again.
            send(&super::setup_warnings::app(layer.with_cost(2)), from([203, 0, 113, 7], &[(header, "x")])).await;
            assert_warnings(&recorder.take().warnings, &[("forwarded_header", header)]);
        }
    }
}

#[tokio::test]
async fn keys_from_other_sources_cause_no_warning_about_addresses() {
    let (limiter, recorder) = recorded();
    let by_api_key = app(RateLimitLayer::new(limiter.clone(), wide(), ApiKey::bearer()));
    let by_tenant = app(RateLimitLayer::new(limiter.clone(), wide(), HeaderKey::new("x-tenant").unwrap()));
    let by_closure = app(RateLimitLayer::new(limiter, wide(), |_: &axum::http::request::Parts| "all".to_owned()));
    let headers = [("x-forwarded-for", "198.51.100.1"), ("authorization", "Bearer x"), ("x-tenant", "a")];
    for _ in 0..1_100 {
        for app in [&by_api_key, &by_tenant, &by_closure] {
            assert_eq!(get_with(app, "/", &headers).await.status, 200);
        }
    }
    assert_eq!(recorder.take().warnings, []);
}

#[tokio::test]
async fn one_address_in_the_first_thousand_requests_warns_and_two_do_not() {
    let (limiter, recorder) = recorded();
    let one = app(RateLimitLayer::new(limiter.clone(), wide(), PeerIp::new()));
    for _ in 0..999 {
        send(&one, from([10, 0, 0, 1], &[])).await;
    }
    assert_eq!(recorder.take().warnings, []);
    for _ in 0..1_100 {
        send(&one, from([10, 0, 0, 1], &[])).await;
    }
    assert_warnings(&recorder.take().warnings, &[("one_address", "first 1000 requests")]);
    let boxed: Box<dyn KeyExtractor> = Box::new(PeerIp::new());
    assert_eq!(boxed.origin(), KeyOrigin::Peer);
    let two = app(RateLimitLayer::new(limiter, wide(), GlobalKey).and(per_minute("q", 9_000), boxed));
    for _ in 0..500 {
        send(&two, from([10, 0, 0, 1], &[])).await;
        send(&two, from([10, 0, 0, 2], &[])).await;
        send(&two, from([10, 0, 0, 1], &[])).await;
    }
    assert_eq!(recorder.take().warnings, []);
}

#[tokio::test]
async fn a_missing_peer_address_warns_where_such_requests_are_not_refused() {
    for missing in [MissingKey::Exempt, MissingKey::ShareOneKey] {
        let (limiter, recorder) = recorded();
        let app = app(RateLimitLayer::new(limiter, wide(), PeerIp::new()).on_missing_key(missing));
        for _ in 0..3 {
            fetch(&app, "/").await;
        }
        let warnings = recorder.take().warnings;
        assert_warnings(&warnings, &[("no_peer_address", "into_make_service_with_connect_info::<SocketAddr>()")]);
    }
}

#[tokio::test]
async fn two_layers_that_charge_the_same_policy_and_key_warn() {
    let (limiter, recorder) = recorded();
    let layer = RateLimitLayer::new(limiter.clone(), wide(), GlobalKey);
    // The mistake: one layer around a route and around its router.
    let twice = Router::new().route("/", get(|| async {}).layer(layer.clone())).layer(layer.clone());
    for _ in 0..3 {
        assert_eq!(fetch(&twice, "/").await.status, 200);
    }
    assert_warnings(&recorder.take().warnings, &[("charged_twice", "policy \"p\"")]);
}

#[tokio::test]
async fn two_layers_that_charge_different_policies_keys_or_stores_do_not_warn() {
    let (limiter, recorder) = recorded();
    let layer = |policy| RateLimitLayer::new(limiter.clone(), policy, GlobalKey);
    let others = [
        Router::new().route("/", get(|| async {})).layer(layer(wide())).layer(layer(per_minute("q", 1_000))),
        Router::new()
            .route("/", get(|| async {}))
            .layer(layer(wide()))
            .layer(RateLimitLayer::new(limiter.clone(), wide(), PeerIp::new()))
            .layer(MockConnectInfo(SocketAddr::from(([10, 0, 0, 1], 1)))),
        Router::new().route("/", get(|| async {})).layer(layer(wide())).layer(RateLimitLayer::new(
            recorded().0,
            wide(),
            GlobalKey,
        )),
        Router::new().route("/", get(|| async {})).layer(layer(wide())).layer(layer(wide()).with_cost(0)),
        Router::new().route("/", get(|| async {})).layer(layer(wide()).with_cost(0)).layer(layer(wide())),
        Router::new()
            .route("/", get(|| async {}).layer(layer(wide())))
            .route("/b", get(|| async {}).layer(layer(wide()))),
    ];
    for app in others {
        for _ in 0..3 {
            assert_eq!(fetch(&app, "/").await.status, 200);
            fetch(&app, "/b").await;
        }
    }
    assert_eq!(recorder.take().warnings, []);
}

#[tokio::test]
async fn a_route_that_matches_none_of_the_first_ten_thousand_requests_warns() {
    let (limiter, recorder) = recorded();
    let layer = RateLimitLayer::new(limiter, wide(), GlobalKey)
        .route("GET /search", Route::new().cost(2))
        .route("POST /search", Route::new().cost(3))
        .route("/serach", Route::exempt());
    let app = app(layer);
    send(&app, request(Method::HEAD, "/search", &[])).await;
    for _ in 0..9_998 {
        fetch(&app, "/").await;
    }
    assert_eq!(recorder.take().warnings, []);
    fetch(&app, "/").await;
    let mut warnings = recorder.take().warnings;
    warnings.sort_by_key(|warning| format!("{warning:?}"));
    let unmatched =
        [("unmatched_route", "first 10000 matched the route \"/serach\""), ("unmatched_route", "\"POST /search\"")];
    assert_warnings(&warnings, &unmatched);
    for _ in 0..10_100 {
        fetch(&app, "/").await;
    }
    assert_eq!(recorder.take().warnings, []);
}

#[tokio::test]
async fn the_log_has_the_cause_and_the_remedy_but_no_address() {
    let (log, _guard) = Log::start(Level::WARN);
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new());
    let app = app(RateLimitLayer::new(limiter, wide(), PeerIp::new()));
    for _ in 0..3 {
        send(&app, from([203, 0, 113, 7], &[("x-forwarded-for", "198.51.100.1")])).await;
    }
    let lines = log.take();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.starts_with("WARN tollgate::setup: a request has the header x-forwarded-for"), "{line}");
    assert!(line.contains("through trusted proxies") && line.ends_with("cause=\"forwarded_header\""), "{line}");
    assert!(!line.contains("203.0") && !line.contains("198.51"), "{line}");
}
