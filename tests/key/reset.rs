//! Resets: `key_of` returns the key that the extractor charges.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, connect_info::ConnectInfo};
use axum::http::Method;
use tollgate::{
    ApiKey, ClientIp, ExtensionKey, GlobalKey, HeaderKey, Key, KeyExtractor, MatchedPathKey, PeerIp, RateLimitLayer,
};

use crate::support::app::{app, limiter, passes, per_minute};
use crate::support::http::request;

const CLIENTS: [&str; 7] = [
    "203.0.113.7",
    "2001:db8:17::4711",
    "::ffff:203.0.113.8",
    "64:ff9b::203.0.113.9",
    "64:ff9b::10.0.0.9",
    "2002:cb00:710a::1",
    "fe80::1",
];

/// Asserts that a reset of `key` gives the requests their budget back.
async fn assert_reset_by_key<K: KeyExtractor>(extractor: K, key: Key, request: impl Fn() -> Request) {
    let limiter = limiter();
    let app = app(RateLimitLayer::new(limiter.clone(), per_minute(1), extractor));
    for _ in 0..2 {
        assert!(passes(&app, request()).await);
        assert!(!passes(&app, request()).await);
        limiter.reset(key.clone(), &per_minute(1)).await.unwrap();
    }
}

fn from(peer: IpAddr, name: &str, value: &str) -> Request {
    let mut request = request(Method::GET, "/", &[(name, value)]);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer, 1)));
    request
}

#[tokio::test]
async fn key_of_an_address_is_the_charged_key() {
    for client in CLIENTS {
        let address: IpAddr = client.parse().unwrap();
        let peer = PeerIp::new();
        assert_reset_by_key(peer.clone(), peer.key_of(address), || from(address, "x-other", "")).await;
        let proxied = ClientIp::header("x-real-ip", ["10.0.0.5"]).unwrap().with_ipv6_prefix(56);
        let key = proxied.key_of(address);
        assert_reset_by_key(proxied, key, || from([10, 0, 0, 5].into(), "x-real-ip", client)).await;
    }
}

#[tokio::test]
async fn key_of_a_header_value_is_the_charged_key() {
    let peer = [10, 0, 0, 5].into();
    let tenant = HeaderKey::new("x-tenant").unwrap();
    assert_reset_by_key(tenant.clone(), tenant.key_of(" a"), || from(peer, "x-tenant", "a ")).await;
    let api_key = ApiKey::header("x-api-key").unwrap();
    assert_reset_by_key(api_key.clone(), api_key.key_of("sk-1 "), || from(peer, "x-api-key", " sk-1")).await;
    let bearer = ApiKey::bearer();
    assert_reset_by_key(bearer.clone(), bearer.key_of("t-1"), || from(peer, "authorization", "Bearer t-1")).await;
}

#[tokio::test]
async fn key_of_a_route_and_of_all_requests_is_the_charged_key() {
    let get = |path: &'static str| move || request(Method::GET, path, &[]);
    assert_reset_by_key(GlobalKey, GlobalKey.key_of(), get("/")).await;
    assert_ne!(GlobalKey.key_of(), Key::from("*"), "no text is the key of all requests");
    assert_reset_by_key(MatchedPathKey, MatchedPathKey.key_of("/users/{id}"), get("/users/7")).await;
    assert_reset_by_key(MatchedPathKey, MatchedPathKey.key_of("/search/"), get("/search?x=1")).await;
    assert_reset_by_key(MatchedPathKey, MatchedPathKey.key_of("/"), get("/")).await;
    let (parts, _) = request(Method::GET, "/nowhere", &[]).into_parts();
    assert_eq!(MatchedPathKey.extract(&parts), Ok(Some(MatchedPathKey.key_of(None))), "no route has matched");
    for path in ["users", ""] {
        assert_eq!(MatchedPathKey.key_of(path), MatchedPathKey.key_of(None), "no template is without a slash");
    }
}

#[tokio::test]
async fn key_of_an_extension_and_of_a_tuple_is_the_charged_key() {
    let from_user = || {
        let mut request = request(Method::GET, "/users/7", &[]);
        request.extensions_mut().insert(17_u64);
        request
    };
    let user = ExtensionKey::<u64>::new();
    assert_reset_by_key(user, user.key_of(&17), from_user).await;
    let key = Key::join([user.key_of(&17), MatchedPathKey.key_of("/users/{id}")]);
    assert_reset_by_key((user, MatchedPathKey), key, from_user).await;
    let inner = Key::join([MatchedPathKey.key_of("/users/{id}"), GlobalKey.key_of()]);
    let key = Key::join([user.key_of(&17), inner]);
    assert_reset_by_key((user, (MatchedPathKey, GlobalKey)), key, from_user).await;
}
