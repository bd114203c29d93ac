//! Keys from the peer address of the connection.

use std::net::{IpAddr, SocketAddr};

use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use axum::{Extension, Router, extract::Request, http::Method};
use tokio::net::TcpListener;
use tollgate::{ClientIp, KeyExtractor, PeerIp};

use crate::support::app::{app, get_passes, layer, passes};
use crate::support::http::{Connection, get, request, serve};

#[tokio::test]
async fn connections_of_one_host_share_its_budget() {
    let address = serve(app(layer(2, PeerIp::new()))).await;
    let (mut one, mut two) = (Connection::open(address).await, Connection::open(address).await);
    assert_eq!(one.get("/").await.status, 200);
    assert_eq!(two.get("/search").await.status, 200);
    assert_eq!(one.get("/").await.status, 429);
    assert_eq!(two.get("/").await.status, 429);
}

/// A real server without `into_make_service_with_connect_info`, a mistake that mocks hide.
#[tokio::test]
async fn a_missing_address_is_400_and_the_body_names_the_fix() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app(layer(10, PeerIp::new()));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let reply = Connection::open(address).await.get("/").await;
    assert_eq!(reply.status, 400);
    let problem = reply.json();
    assert_eq!(problem["type"], "about:blank");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("into_make_service_with_connect_info::<SocketAddr>()"), "{detail}");
}

#[tokio::test]
async fn mock_connect_info_stands_in_for_the_connection() {
    let peer: SocketAddr = "203.0.113.7:1".parse().unwrap();
    let app = app(layer(1, PeerIp::new())).layer(MockConnectInfo(peer));
    assert!(get_passes(&app, "/").await);
    assert!(!get_passes(&app, "/").await);
}

fn from(peer: &str) -> Request {
    let mut request = request(Method::GET, "/", &[]);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
    request
}

/// Mapped IPv4 addresses share their first 96 bits, so grouping by prefix would give all of them one budget
/// (GHSA-46wh-pxpv-q5gq).
#[tokio::test]
async fn ipv4_peers_of_a_dual_stack_listener_have_separate_budgets() {
    let app = app(layer(1, PeerIp::new()));
    assert!(passes(&app, from("::ffff:203.0.113.1")).await);
    assert!(passes(&app, from("::ffff:203.0.113.2")).await);
    assert!(!passes(&app, from("::ffff:203.0.113.1")).await);
    assert!(!passes(&app, from("203.0.113.2")).await, "the mapped and the plain address are one client");
}

#[tokio::test]
async fn ipv6_peers_are_grouped_by_prefix() {
    let by_64 = app(layer(1, PeerIp::new()));
    assert!(passes(&by_64, from("2001:db8:0:1::1")).await);
    assert!(!passes(&by_64, from("2001:db8:0:1:ffff::2")).await);
    assert!(passes(&by_64, from("2001:db8:0:2::1")).await);

    let whole = app(layer(1, ClientIp::peer().with_ipv6_prefix(128)));
    assert!(passes(&whole, from("2001:db8:0:1::1")).await);
    assert!(passes(&whole, from("2001:db8:0:1::2")).await);
    assert!(!passes(&whole, from("2001:db8:0:1::1")).await);
}

/// All hosts of a link share one /64, and all clients of a NAT64 translator share another one.
#[tokio::test]
async fn hosts_of_one_link_have_separate_budgets() {
    let app = app(layer(1, PeerIp::new()));
    for first in ["fe80::1", "fe80::2", "64:ff9b::10.0.0.1", "64:ff9b::10.0.0.2"] {
        assert!(passes(&app, from(first)).await, "{first}");
        assert!(!passes(&app, from(first)).await, "{first}");
    }
}

/// A 6to4 router has a /48, which is 65 536 networks of /64.
#[tokio::test]
async fn law_14_the_networks_behind_a_6to4_router_are_one_client() {
    let app = app(layer(1, PeerIp::new()));
    assert!(passes(&app, from("2002:cb00:7107:1::1")).await);
    for same in ["2002:cb00:7107:2::1", "2002:cb00:7107:ffff::1", "203.0.113.7"] {
        assert!(!passes(&app, from(same)).await, "{same}");
    }
    assert!(passes(&app, from("2002:a00:1:1::1")).await);
    assert!(
        !passes(&app, from("2002:a00:1:2::1")).await,
        "a router with an address that is not global is grouped by /48"
    );
}

#[tokio::test]
async fn clients_of_a_nat64_translator_have_separate_budgets() {
    let app = app(layer(1, ClientIp::peer().with_nat64_prefix("2001:db8:122::/96")));
    assert!(passes(&app, from("2001:db8:122::198.51.100.1")).await);
    assert!(passes(&app, from("2001:db8:122::198.51.100.2")).await);
    assert!(!passes(&app, from("198.51.100.1")).await, "the translated and the plain address are one client");
    let error = ClientIp::peer().with_nat64_prefix("2001:db8:122::/97").validate().unwrap_err().to_string();
    assert!(error.contains("2001:db8:122::/97") && error.contains("32, 40, 48"), "{error}");
}

/// Servers other than axum's insert the address when they accept the connection.
#[tokio::test]
async fn an_address_in_the_extensions_is_enough() {
    let limit = layer(1, PeerIp::new());
    let ip: IpAddr = "203.0.113.7".parse().unwrap();
    let by_ip: Router = app(limit.clone()).layer(Extension(ip));
    let by_socket: Router = app(limit).layer(Extension(SocketAddr::new(ip, 4711)));
    assert!(get_passes(&by_ip, "/").await);
    assert!(!get_passes(&by_socket, "/").await);
}

#[tokio::test]
async fn forwarding_headers_are_ignored() {
    let app = app(layer(1, PeerIp::new()));
    for (hop, passed) in [("198.51.100.1", true), ("198.51.100.2", false)] {
        let mut request = from("203.0.113.7");
        for name in ["x-forwarded-for", "x-real-ip", "cf-connecting-ip"] {
            request.headers_mut().insert(name, hop.parse().unwrap());
        }
        request.headers_mut().insert("forwarded", format!("for={hop}").parse().unwrap());
        assert_eq!(passes(&app, request).await, passed);
    }
    assert_eq!(get(&app, "/").await.status, 400, "the headers do not replace a missing address");
}
