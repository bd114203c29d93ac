//! Denied and exempt addresses, in every form in which an address arrives.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, connect_info::ConnectInfo};
use axum::{Router, http::Method};
use tollgate::{ClientIp, GlobalKey, HeaderKey, KeyExtractor, MissingKey, Policy, Route, key::PrefixList};

use crate::support::app::{app, layer};
use crate::support::http::{request, send};

fn from(peer: &str, headers: &[(&str, &str)]) -> Request {
    let mut request = request(Method::GET, "/", headers);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
    request
}

async fn status(app: &Router, request: Request) -> u16 {
    send(app, request).await.status.as_u16()
}

/// The proxy appends to the header that the client sent, so the client can make the whole header malformed.
#[tokio::test]
async fn law_14_a_denied_client_cannot_hide_behind_a_malformed_header_where_nothing_limits_it() {
    let denied = || ClientIp::forwarded(["10.0.0.0/8"]).unwrap().deny(["198.51.100.0/24"]);
    let none = |_: &axum::http::request::Parts| None::<tollgate::Key>;
    let boxed: Box<dyn KeyExtractor> = Box::new(denied());
    let tenant = HeaderKey::new("x-none").unwrap();
    let another = layer(1, GlobalKey).and(Policy::per_minute("other", 9).unwrap(), denied());
    for (name, app) in [
        ("exempt route", app(layer(1, denied()).route("/", Route::exempt()))),
        ("another subject", app(another.route("/", Route::exempt()))),
        ("box", app(layer(1, boxed).route("/", Route::exempt()))),
        ("tuple", app(layer(1, (GlobalKey, denied())).route("/", Route::exempt()))),
        ("tuple with an exempt part", app(layer(1, (none, denied())))),
        ("tuple with a missing part", app(layer(1, (tenant, denied())).on_missing_key(MissingKey::Exempt))),
    ] {
        let proxied = |forwarded: &str| from("10.0.0.5", &[("forwarded", forwarded)]);
        for (forwarded, expected) in [
            ("for=198.51.100.7", 403),
            (r#"for="unclosed, for=198.51.100.7"#, 400),
            ("for=203.0.113.7", 200),
            ("for=203.0.113.7", 200),
        ] {
            assert_eq!(status(&app, proxied(forwarded)).await, expected, "{name}: {forwarded}");
        }
        assert_eq!(status(&app, from("10.0.0.5", &[])).await, 200, "{name}: the health check of the proxy");
    }
}

#[tokio::test]
async fn an_allowed_address_inside_a_denied_network_is_limited_by_its_own_budget() {
    let denied = PrefixList::new("198.51.100.0/24").unwrap().except("198.51.100.7");
    let app = app(layer(1, ClientIp::peer().deny(denied).with_ipv4_prefix(16)));
    for (peer, expected) in [
        ("198.51.100.6", 403),
        ("198.51.100.7", 200),
        ("::ffff:198.51.100.7", 429),
        ("64:ff9b::198.51.100.7", 429),
        ("64:ff9b::198.51.100.8", 403),
        ("198.51.101.1", 429),
        ("198.52.0.1", 200),
    ] {
        assert_eq!(status(&app, from(peer, &[])).await, expected, "{peer}");
    }
}

#[tokio::test]
async fn keys_that_are_no_addresses_are_denied_with_a_cause_of_their_own() {
    use tollgate::{Key, key::KeyError};
    let but_mallory = tollgate::key::from_fn(|parts| match parts.headers.get("x-tenant") {
        Some(tenant) if tenant == "mallory" => Err(KeyError::denied()),
        Some(tenant) => Ok(Key::new(tenant)),
        None => Err(KeyError::missing("a tenant")),
    });
    let app = app(layer(1, but_mallory));
    for (tenant, expected) in [("mallory", 403), ("alice", 200), ("mallory", 403), ("alice", 429)] {
        assert_eq!(status(&app, from("192.0.2.1", &[("x-tenant", tenant)])).await, expected);
    }
    let error = KeyError::denied();
    assert_eq!((error.cause(), error.is_missing()), ("denied", false));
    assert_eq!(error.to_string(), "requests with this key are refused");
}

/// Without denied addresses, an exempt route does not read the header.
#[tokio::test]
async fn a_malformed_header_passes_an_exempt_route_where_no_address_is_denied() {
    let client = ClientIp::forwarded(["10.0.0.0/8"]).unwrap();
    let app = app(layer(1, client).route("/", Route::exempt()));
    assert_eq!(status(&app, from("10.0.0.5", &[("forwarded", r#"for="unclosed"#)])).await, 200);
}

/// An IPv6 prefix is compared with the NAT64 address as received, and an IPv4 prefix with the embedded address.
#[tokio::test]
async fn law_14_denied_prefixes_match_nat64_addresses_in_both_forms() {
    let peer = ClientIp::peer;
    let own = || peer().with_nat64_prefix("2001:db8:64::/96");
    for (client, prefix, address) in [
        (peer(), "64:ff9b::/64", "64:ff9b::8.8.8.8"),
        (peer(), "8.8.8.0/24", "64:ff9b::8.8.8.8"),
        (peer().keep_nat64(), "64:ff9b::/64", "64:ff9b::8.8.8.8"),
        (peer().keep_nat64(), "8.8.8.0/24", "64:ff9b::8.8.8.8"),
        (own(), "2001:db8::/32", "2001:db8:64::8.8.8.8"),
        (own(), "8.8.8.0/24", "2001:db8:64::8.8.8.8"),
        (own(), "64:ff9b::/64", "64:ff9b::8.8.8.8"),
        (peer(), "8.8.8.0/24", "::ffff:8.8.8.8"),
    ] {
        let client = client.deny(prefix);
        let limited = app(layer(1, client.clone()));
        assert_eq!(status(&limited, from(address, &[])).await, 403, "{prefix} {address}");
        assert_eq!(status(&limited, from("64:ff9b::9.9.9.9", &[])).await == 403, prefix.starts_with("64:"), "{prefix}");
        let exempt = app(layer(1, client).route("/", Route::exempt()));
        assert_eq!(status(&exempt, from(address, &[])).await, 403, "{prefix} {address}, on an exempt route");
    }
    // The mapped address of an IPv4 client of a dual-stack socket does not match an IPv6 prefix.
    let app = app(layer(1, peer().deny(["::/3"])));
    assert_eq!(status(&app, from("::ffff:8.8.8.8", &[])).await, 200);
}

/// Exempt prefixes are compared with the address after the NAT64 settings of the extractor.
#[tokio::test]
async fn law_14_with_keep_nat64_an_ipv4_prefix_does_not_exempt_a_nat64_address() {
    let exempt = |client: ClientIp, prefix: &str| app(layer(1, client.exempt(prefix)));
    let own = || ClientIp::peer().with_nat64_prefix("2001:db8:64::/96");
    for (app, address, second) in [
        (exempt(ClientIp::peer().keep_nat64(), "8.8.8.0/24"), "64:ff9b::8.8.8.8", 429),
        (exempt(ClientIp::peer().keep_nat64(), "64:ff9b::8.8.8.0/120"), "64:ff9b::8.8.8.8", 200),
        (exempt(ClientIp::peer(), "8.8.8.0/24"), "64:ff9b::8.8.8.8", 200),
        (exempt(own(), "8.8.8.0/24"), "2001:db8:64::8.8.8.8", 200),
        (exempt(own(), "2001:db8::/32"), "2001:db8:64::8.8.8.8", 429),
    ] {
        assert_eq!(status(&app, from(address, &[])).await, 200, "{address}");
        assert_eq!(status(&app, from(address, &[])).await, second, "{address}");
    }
}

#[test]
fn a_prefix_list_contains_a_nat64_address_in_both_forms() {
    let contains =
        |prefix: &str| PrefixList::new(prefix).unwrap().contains("64:ff9b::8.8.8.8".parse::<IpAddr>().unwrap());
    assert!(contains("64:ff9b::/64"), "as it was received");
    assert!(contains("8.8.8.0/24"), "as the embedded IPv4 address");
    assert!(!contains("8.8.4.0/24, 2001:db8::/32"));
}

/// RFC 6890: these are not addresses of hosts on the internet, so a translator does not forward them.
#[test]
fn special_purpose_ipv4_addresses_are_not_extracted_from_nat64() {
    let key = |address: &str| ClientIp::peer().key_of(address.parse().unwrap());
    for address in ["192.0.0.8", "192.88.99.1", "198.18.0.1", "198.19.255.255"] {
        assert_ne!(key(&format!("64:ff9b::{address}")), key(address), "{address}");
    }
    for address in ["192.0.1.1", "192.0.2.1", "192.88.98.1", "198.17.255.255", "198.20.0.0", "198.51.100.1"] {
        assert_eq!(key(&format!("64:ff9b::{address}")), key(address), "{address}");
    }
}
