//! Whatever a client sends, it is charged as the address that it calls from.

use std::net::IpAddr;

use axum::{
    Router,
    http::{HeaderName, HeaderValue, Method, StatusCode},
    routing::get,
};
use tokio::net::UnixListener;
use tollgate::{ClientIp, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer};

use super::nginx::{FRONT, Nginx, PROXY, Way};
use crate::support::{
    http::{Connection, Reply, request, serve},
    redis_server::Directory,
};

const ALICE: &str = "127.0.0.2";
const BOB: &str = "127.0.0.3";

/// Lines that a client may put before those of the proxy. `{n}` is another number in each request.
const FORGED: [&[(&str, &str)]; 9] = [
    &[],
    &[("x-forwarded-for", "198.51.100.{n}")],
    &[("x-forwarded-for", "198.51.100.{n}"), ("x-forwarded-for", "127.0.0.3, 127.0.0.8, 127.0.0.9")],
    &[("x-forwarded-for", "127.0.0.3"), ("x-real-ip", "127.0.0.3"), ("forwarded", "for=127.0.0.3")],
    &[("x-forwarded-for", "<script>, \"203.0.113.{n}, ::{n}, unknown, _x,,"), ("x-real-ip", "198.51.100.{n}")],
    &[("forwarded", "for=198.51.100.{n};by=127.0.0.9, for=\"[2001:db8::{n}]:80\"")],
    &[("forwarded", "for=127.0.0.3;host=\"a,b;c\""), ("x-real-ip", "127.0.0.9")],
    &[("cf-connecting-ip", "127.0.0.3"), ("true-client-ip", "127.0.0.3"), ("fly-client-ip", "127.0.0.3")],
    &[("x-forwarded-for", "127.0.0.9, 127.0.0.9, 127.0.0.9"), ("x-forwarded-for", "127.0.0.8")],
];

/// An application that is called on a port and on a socket, with nginx in front of it.
struct Site {
    nginx: Nginx,
    application: std::net::SocketAddr,
    _directory: Directory,
}

impl Site {
    async fn of(client: ClientIp) -> Self {
        let limiter = Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
        let limit = Policy::per_minute("p", u32::try_from(FORGED.len()).unwrap()).unwrap();
        let router =
            Router::new().route("/", get(async || "passed")).layer(RateLimitLayer::new(limiter, limit, client));
        let directory = Directory::new();
        let socket = directory.path("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let application = serve(router.clone()).await;
        tokio::spawn(async move { axum::serve(listener, router.into_make_service()).await });
        let nginx = tokio::task::spawn_blocking(move || Nginx::start(application, &socket)).await.unwrap();
        Self { nginx, application, _directory: directory }
    }

    async fn through(&self, way: Way, source: &str) -> Caller {
        Caller(Connection::open_from(source.parse().unwrap(), self.nginx.address(way)).await)
    }

    async fn past_the_proxy(&self, source: &str) -> Caller {
        Caller(Connection::open_from(source.parse::<IpAddr>().unwrap(), self.application).await)
    }
}

struct Caller(Connection);

impl Caller {
    async fn send(&mut self, number: usize, lines: &[(&str, &str)]) -> Reply {
        let mut request = request(Method::GET, "/", &[]);
        for (name, value) in lines {
            let value = value.replace("{n}", &number.to_string());
            request.headers_mut().append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(&value).unwrap());
        }
        self.0.send(request).await
    }

    /// Spends the whole budget, one request for each way of forging, and is refused from then on.
    async fn is_charged_for_all(&mut self, of: &str) {
        for (number, lines) in FORGED.iter().enumerate() {
            let reply = self.send(number, lines).await;
            assert_eq!(reply.status, StatusCode::OK, "{of}: {lines:?}: {}", reply.text());
            let left = FORGED.len() - 1 - number;
            assert!(reply.header("ratelimit").unwrap().contains(&format!(";r={left};")), "{of}: {lines:?}");
        }
        for (number, lines) in FORGED.iter().enumerate() {
            let reply = self.send(number, lines).await;
            assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{of}: {lines:?}");
        }
    }
}

async fn nothing_forged_changes_the_client(way: Way, client: ClientIp) {
    let site = Site::of(client).await;
    site.through(way, ALICE).await.is_charged_for_all("alice").await;
    // Whose address was forged in nearly all of those.
    site.through(way, BOB).await.is_charged_for_all("bob").await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_nginx() {
    nothing_forged_changes_the_client(Way::ForwardedFor, ClientIp::x_forwarded_for([PROXY]).unwrap()).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_one_load_balancer() {
    nothing_forged_changes_the_client(Way::ForwardedFor, ClientIp::behind_load_balancer([PROXY]).unwrap()).await;
    // Not even for callers from the balancer's own network.
    let neighbours = ClientIp::behind_load_balancer(["127.0.0.0/8"]).unwrap();
    nothing_forged_changes_the_client(Way::ForwardedFor, neighbours).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_two_proxies() {
    let trusted = ClientIp::x_forwarded_for([FRONT, PROXY]).unwrap();
    nothing_forged_changes_the_client(Way::TwoInARow, trusted).await;
    let counted = ClientIp::x_forwarded_for_hops(2).unwrap().only_from([PROXY]).unwrap();
    nothing_forged_changes_the_client(Way::TwoInARow, counted).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_a_unix_socket() {
    let client = ClientIp::behind_unix_socket();
    nothing_forged_changes_the_client(Way::UnixSocket, client).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_where_nginx_appends_to_forwarded() {
    nothing_forged_changes_the_client(Way::Forwarded, ClientIp::forwarded([PROXY]).unwrap()).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_where_nginx_sets_x_real_ip() {
    nothing_forged_changes_the_client(Way::RealIp, ClientIp::x_real_ip([PROXY]).unwrap()).await;
}

/// The proxy's element would be a part of the quoted string, and the one before it the client.
#[tokio::test]
async fn a_quote_that_a_client_opens_is_its_own_400() {
    let site = Site::of(ClientIp::forwarded([PROXY]).unwrap()).await;
    for line in ["for=127.0.0.3;x=\"", "for=127.0.0.3, x=\"", "for=\"127.0.0.3", "for=127.0.0.3;for=127.0.0.3", "for"] {
        let reply = site.through(Way::Forwarded, ALICE).await.send(1, &[("forwarded", line)]).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{line}");
    }
    site.through(Way::Forwarded, BOB).await.is_charged_for_all("bob").await;
    site.through(Way::Forwarded, ALICE).await.is_charged_for_all("alice").await;
}

#[tokio::test]
async fn a_client_that_comes_past_the_proxy_is_charged_as_itself() {
    for client in [
        ClientIp::x_forwarded_for([PROXY]).unwrap(),
        ClientIp::behind_load_balancer([PROXY]).unwrap(),
        ClientIp::x_forwarded_for_hops(1).unwrap().only_from([PROXY]).unwrap(),
        ClientIp::forwarded([PROXY]).unwrap(),
        ClientIp::x_real_ip([PROXY]).unwrap(),
        ClientIp::behind_cloudflare(),
        ClientIp::behind_fly(),
    ] {
        let site = Site::of(client).await;
        site.past_the_proxy(ALICE).await.is_charged_for_all("alice").await;
        site.past_the_proxy(BOB).await.is_charged_for_all("bob").await;
    }
}

/// Without trust in the socket there is no client; with `PeerIp`'s setting, all would be one.
#[tokio::test]
async fn a_unix_socket_that_is_not_trusted_is_400() {
    let site = Site::of(ClientIp::x_forwarded_for([PROXY]).unwrap()).await;
    let reply = site.through(Way::UnixSocket, ALICE).await.send(1, &[("x-forwarded-for", BOB)]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
}
