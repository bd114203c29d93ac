//! Clients behind proxies, exempt addresses and refused addresses. Tests with real proxies are in tests/server/proxy.

use std::{error::Error, net::SocketAddr};

use axum::extract::{Request, connect_info::ConnectInfo};
use axum::{Router, http::Method};
use tollgate::key::{KeyError, PrefixList};
use tollgate::rejection::{Denial, Reason};
use tollgate::{
    ClientIp, GlobalKey, HeaderKey, KeyExtractor, MatchedPathKey, MissingKey, Policy, RateLimitLayer, Route,
};

use crate::support::app::{app, layer, passes};
use crate::support::http::{get, request, send};
use crate::support::says;

/// A request from the proxy 10.0.0.5 on behalf of `client`.
fn forwarded_for(client: &str, path: &str) -> Request {
    let mut request = request(Method::GET, path, &[("x-forwarded-for", client)]);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new([10, 0, 0, 5].into(), 1)));
    request
}

fn client() -> ClientIp {
    ClientIp::x_forwarded_for(["10.0.0.0/8"]).unwrap()
}

#[tokio::test]
async fn exempt_prefixes_are_not_limited() {
    let app = app(layer(1, client().exempt(["198.51.100.0/24", "2001:db8:17::/48"])));
    for internal in ["198.51.100.1", "198.51.100.1", "::ffff:198.51.100.1", "2001:db8:17:1::1", "2001:db8:17:1::1"] {
        let reply = send(&app, forwarded_for(internal, "/")).await;
        assert_eq!((reply.status.as_u16(), reply.header("ratelimit")), (200, None), "{internal}");
    }
    assert!(passes(&app, forwarded_for("198.51.101.1", "/")).await);
    assert!(!passes(&app, forwarded_for("198.51.101.1", "/")).await);
    // A forged first entry does not exempt the client.
    assert!(!passes(&app, forwarded_for("198.51.100.1, 198.51.101.1", "/")).await);
}

#[tokio::test]
async fn denied_prefixes_are_403_with_a_reason_and_no_retry_after() {
    let denied = client().exempt(["198.51.100.7"]).deny(["198.51.100.0/24"]);
    for missing in [MissingKey::Reject, MissingKey::Exempt, MissingKey::ShareOneKey] {
        let app = app(layer(1, denied.clone()).on_missing_key(missing));
        for address in ["198.51.100.1", "198.51.100.7", "64:ff9b::198.51.100.1", "203.0.113.1, 198.51.100.1"] {
            let reply = send(&app, forwarded_for(address, "/")).await;
            assert_eq!(reply.status, 403, "{address}");
            assert_eq!((reply.header("retry-after"), reply.header("ratelimit")), (None, None));
            assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
            let denial = reply.extensions.get::<Denial>().unwrap();
            assert_eq!(denial.reason(), Reason::Key);
            assert_eq!(denial.source().unwrap().downcast_ref::<KeyError>().unwrap().cause(), "address_denied");
            let body = serde_json::json!({"type": "about:blank", "title": "Forbidden", "status": 403});
            assert_eq!(reply.json(), body);
        }
        assert!(passes(&app, forwarded_for("203.0.113.1", "/")).await);
    }
}

/// An exempt route or part of a key does not admit a denied address.
#[tokio::test]
async fn law_14_a_denied_address_is_refused_wherever_nothing_limits_it() {
    let denied = || client().deny(["198.51.100.0/24"]);
    let none = |_: &axum::http::request::Parts| None::<tollgate::Key>;
    let boxed: Box<dyn KeyExtractor> = Box::new(denied());
    let limit = layer(1, GlobalKey);
    let as_other = limit.and(Policy::per_minute("other", 9).unwrap(), denied());
    let exempt = |limit: RateLimitLayer<_>| app(limit.route("/", Route::exempt()));
    for (name, app) in [
        ("exempt route", app(layer(1, denied()).route("/", Route::exempt()))),
        ("another subject", exempt(as_other)),
        ("box", app(layer(1, boxed).route("/", Route::exempt()))),
        ("tuple", app(layer(1, (GlobalKey, denied())).route("/", Route::exempt()))),
        ("tuple with an exempt part", app(layer(1, (none, denied())))),
        (
            "tuple with a missing part",
            app(layer(1, (HeaderKey::new("x-none").unwrap(), denied())).on_missing_key(MissingKey::Exempt)),
        ),
    ] {
        assert_eq!(send(&app, forwarded_for("198.51.100.1", "/")).await.status, 403, "{name}");
        for _ in 0..2 {
            assert_eq!(send(&app, forwarded_for("203.0.113.1", "/")).await.status, 200, "{name}");
        }
        // A request without a client address needs no key here.
        assert_eq!(get(&app, "/").await.status, 200, "{name}");
    }
}

/// With an empty list, the proxy would be charged for all its clients.
#[test]
fn an_empty_list_of_proxies_is_an_error_that_says_what_to_write() {
    let none: [&str; 0] = [];
    for error in [
        ClientIp::x_forwarded_for(none).unwrap_err(),
        ClientIp::x_forwarded_for("").unwrap_err(),
        ClientIp::x_forwarded_for(" , ").unwrap_err(),
        ClientIp::x_forwarded_for(PrefixList::default()).unwrap_err(),
        ClientIp::forwarded("").unwrap_err(),
        ClientIp::header("x-real-ip", "").unwrap_err(),
        ClientIp::header("x-client", "").unwrap_err(),
        ClientIp::behind_load_balancer("").unwrap_err(),
        ClientIp::x_forwarded_for(1).unwrap().only_from("").validate().unwrap_err(),
    ] {
        assert!(error.to_string().contains("`ClientIp::peer()`"), "{error}");
    }
    assert!(client().exempt("").validate().is_ok() && client().deny("").validate().is_ok());
}

/// A request from `peer` on behalf of `client`.
fn from(peer: &str, client: &str) -> Request {
    let mut request = request(Method::GET, "/", &[("x-forwarded-for", client)]);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
    request
}

/// RFC 6052, section 3.1: a translator does not forward addresses that are not global, so these addresses are forged.
#[tokio::test]
async fn law_14_a_private_ipv4_address_embedded_in_ipv6_is_not_trusted() {
    let ip =
        |limit: ClientIp, peer: &str| limit.resolve(&from(peer, "203.0.113.7").into_parts().0).unwrap().to_string();
    let local = || ClientIp::x_forwarded_for(["127.0.0.1", "10.0.0.0/8", "198.51.100.0/24"]).unwrap();
    let own = || local().with_nat64_prefix("2001:db8:122::/96");
    for (limit, peer) in [
        (local(), "64:ff9b::127.0.0.1"),
        (local(), "64:ff9b::10.0.0.5"),
        (own(), "2001:db8:122::10.0.0.5"),
        (local(), "2002:a00:5::1"),
        (local(), "2002:c633:6405::1"),
    ] {
        let peer: std::net::IpAddr = peer.parse().unwrap();
        assert_eq!(ip(limit, &peer.to_string()), peer.to_string());
    }
    assert_eq!(ip(local(), "64:ff9b::198.51.100.5"), "203.0.113.7", "a global address is trusted");
    assert_eq!(ip(own(), "2001:db8:122::198.51.100.5"), "203.0.113.7");
    assert_eq!(ip(local(), "::ffff:10.0.0.5"), "203.0.113.7", "a mapped address is trusted");

    let app = app(layer(1, client().exempt(["10.0.0.0/8"]).deny(["127.0.0.1"])));
    assert!(passes(&app, forwarded_for("64:ff9b::10.0.0.9", "/")).await);
    assert!(!passes(&app, forwarded_for("64:ff9b::10.0.0.9", "/")).await, "the address is not exempt");
    assert!(passes(&app, forwarded_for("64:ff9b::127.0.0.1", "/")).await, "the address is not denied as loopback");
}

#[test]
fn prefixes_of_nat64_can_be_trusted() {
    let trusted = || ClientIp::x_forwarded_for(["64:ff9b::198.51.100.0/120", "64:ff9b::10.0.0.0/104"]).unwrap();
    for limit in [trusted().keep_nat64(), trusted()] {
        for peer in ["64:ff9b::198.51.100.5", "64:ff9b::10.0.0.5"] {
            let (parts, _) = from(peer, "203.0.113.7").into_parts();
            assert_eq!(limit.resolve(&parts).unwrap().to_string(), "203.0.113.7", "{peer}");
        }
    }
}

#[tokio::test]
async fn a_client_ip_can_be_part_of_a_tuple_key() {
    let app = app(layer(1, (client(), MatchedPathKey)));
    assert!(passes(&app, forwarded_for("203.0.113.1", "/")).await);
    assert!(passes(&app, forwarded_for("203.0.113.1", "/search")).await);
    assert!(passes(&app, forwarded_for("203.0.113.2", "/search")).await);
    assert!(!passes(&app, forwarded_for("203.0.113.1", "/search")).await);
}

/// A closure exempts by the resolved address and charges another key.
#[tokio::test]
async fn a_closure_exempts_by_address_and_charges_another_key() {
    let (client, office) = (client(), PrefixList::new("198.51.100.0/24").unwrap());
    let tenant = HeaderKey::new("x-tenant").unwrap();
    let limit = layer(1, move |parts: &axum::http::request::Parts| {
        use tollgate::KeyExtractor;
        if office.contains(client.resolve(parts)?) { Ok(None) } else { tenant.extract(parts) }
    });
    let app = app(limit);
    let tenant = |address| {
        let mut request = forwarded_for(address, "/");
        request.headers_mut().insert("x-tenant", "a".parse().unwrap());
        request
    };
    assert!(passes(&app, tenant("203.0.113.1")).await);
    assert!(!passes(&app, tenant("203.0.113.2")).await);
    assert!(passes(&app, tenant("198.51.100.1")).await);
}

#[tokio::test]
async fn a_malformed_header_is_400_and_the_body_does_not_show_it() {
    let app: Router = app(layer(1, client()));
    for header in ["203.0.113.1, junk-7f3a", "unknown", "_hidden", "203.0.113.256", "\"203.0.113.1\""] {
        let reply = send(&app, forwarded_for(header, "/")).await;
        assert_eq!(reply.status, 400, "{header}");
        assert_eq!(reply.json(), serde_json::json!({"type": "about:blank", "title": "Bad Request", "status": 400}));
    }
    let detail = get(&app, "/").await.json()["detail"].to_string();
    assert!(detail.contains("into_make_service_with_connect_info"), "no address: {detail}");
}

#[test]
fn wrong_settings_are_errors_that_contain_the_value() {
    for (error, value) in [
        (ClientIp::x_forwarded_for(["0.0.0.0/0"]).unwrap_err(), "0.0.0.0/0"),
        (ClientIp::x_forwarded_for("10.0.0.0/8, ::/0").unwrap_err(), "::/0"),
        (ClientIp::forwarded(["10.0.0/8"]).unwrap_err(), "10.0.0/8"),
        (client().exempt(["0.0.0.0/0"]).validate().unwrap_err(), "0.0.0.0/0"),
        (client().deny(["0.0.0.0/0"]).validate().unwrap_err(), "every client would be trusted, exempt or denied; "),
        (client().deny(["localhost"]).validate().unwrap_err(), "localhost"),
        (client().with_ipv6_prefix(24).validate().unwrap_err(), "/24"),
        (ClientIp::x_forwarded_for(0).unwrap_err(), "0 hops"),
        (ClientIp::forwarded(65).unwrap_err(), "65 hops"),
        (ClientIp::header("x client", ["10.0.0.1"]).unwrap_err(), "x client"),
    ] {
        assert!(error.to_string().contains(value), "{error}");
    }
    says(ClientIp::header("x-real-ip", ["::/0"]).unwrap_err(), r#""::/0" contains every address, "#);
    assert!(ClientIp::header("x-real-ip", PrefixList::dangerously_everybody()).is_ok());
}

/// `Forwarded` is read from its start, so the reader must keep more addresses than a walk covers.
#[test]
fn a_walk_covers_64_addresses_however_long_the_header_is() {
    let forwarded = ClientIp::forwarded(["10.0.0.0/8"]).unwrap();
    let clients = [(client(), "x-forwarded-for", "10.0.0.1"), (forwarded, "forwarded", "for=10.0.0.1")];
    for (client, header, element) in clients {
        let resolve = |addresses: usize| {
            let line = vec![element; addresses].join(", ");
            let mut request = request(Method::GET, "/", &[(header, line.as_str())]);
            request.extensions_mut().insert(ConnectInfo(SocketAddr::new([10, 0, 0, 5].into(), 1)));
            let resolved = client.resolve(&request.into_parts().0);
            resolved.map(|address| address.to_string()).map_err(|error| error.cause())
        };
        assert_eq!(resolve(64), Ok("10.0.0.1".to_owned()), "{header}");
        for addresses in (65..=260).chain([1_000]) {
            assert_eq!(resolve(addresses), Err("too_many_hops"), "{addresses} in {header}");
        }
    }
}
