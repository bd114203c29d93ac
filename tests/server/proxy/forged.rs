//! Forged headers: each client is charged under its own address, whatever headers it sends.

use std::net::IpAddr;

use axum::{Router, http::StatusCode, routing::get};
use tokio::net::UnixListener;
use tollgate::{ClientIp, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer};

use super::caller::{ALICE, BOB, BUDGET, Caller};
use super::nginx::{FRONT, Nginx, PROXY, ProxyChain};
use crate::support::http::{Connection, serve};
use crate::support::redis_server::Directory;

/// An application on a port and on a unix socket, behind nginx.
struct Site {
    nginx: Nginx,
    application: std::net::SocketAddr,
    _directory: Directory,
}

impl Site {
    async fn start(client: ClientIp) -> Self {
        let limiter = Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
        let limit = Policy::per_minute("p", u64::try_from(BUDGET).unwrap()).unwrap();
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

    async fn through(&self, chain: ProxyChain, source: &str) -> Caller {
        Caller::Http1(Connection::open_from(source.parse().unwrap(), self.nginx.address(chain)).await)
    }

    async fn direct(&self, source: &str) -> Caller {
        Caller::Http1(Connection::open_from(source.parse::<IpAddr>().unwrap(), self.application).await)
    }
}

async fn nothing_forged_changes_the_client(chain: ProxyChain, client: ClientIp) {
    let site = Site::start(client).await;
    site.through(chain, ALICE).await.assert_charged_for_all("alice").await;
    // Most of Alice's requests forged Bob's address; Bob's budget must be untouched.
    site.through(chain, BOB).await.assert_charged_for_all("bob").await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_nginx() {
    nothing_forged_changes_the_client(ProxyChain::ForwardedFor, ClientIp::x_forwarded_for([PROXY]).unwrap()).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_one_load_balancer() {
    nothing_forged_changes_the_client(ProxyChain::ForwardedFor, ClientIp::behind_load_balancer([PROXY]).unwrap()).await;
    // Also for clients inside the trusted network of the balancer.
    let neighbours = ClientIp::behind_load_balancer(["127.0.0.0/8"]).unwrap();
    nothing_forged_changes_the_client(ProxyChain::ForwardedFor, neighbours).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_two_proxies() {
    let trusted = ClientIp::x_forwarded_for([FRONT, PROXY]).unwrap();
    nothing_forged_changes_the_client(ProxyChain::TwoProxies, trusted).await;
    let counted = ClientIp::x_forwarded_for(2).unwrap().only_from([PROXY]);
    nothing_forged_changes_the_client(ProxyChain::TwoProxies, counted).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_a_unix_socket() {
    let client = ClientIp::behind_unix_socket();
    nothing_forged_changes_the_client(ProxyChain::UnixSocket, client).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_where_nginx_appends_to_forwarded() {
    nothing_forged_changes_the_client(ProxyChain::Forwarded, ClientIp::forwarded([PROXY]).unwrap()).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_where_nginx_sets_x_real_ip() {
    nothing_forged_changes_the_client(ProxyChain::RealIp, ClientIp::header("x-real-ip", [PROXY]).unwrap()).await;
}

/// An open quote would swallow the proxy's element, so that the forged element before it became the client.
#[tokio::test]
async fn an_unclosed_quote_from_a_client_is_400() {
    let site = Site::start(ClientIp::forwarded([PROXY]).unwrap()).await;
    for line in ["for=127.0.0.3;x=\"", "for=127.0.0.3, x=\"", "for=\"127.0.0.3", "for=127.0.0.3;for=127.0.0.3", "for"] {
        let reply = site.through(ProxyChain::Forwarded, ALICE).await.send(1, &[("forwarded", line)]).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{line}");
    }
    site.through(ProxyChain::Forwarded, BOB).await.assert_charged_for_all("bob").await;
    site.through(ProxyChain::Forwarded, ALICE).await.assert_charged_for_all("alice").await;
}

#[tokio::test]
async fn a_client_that_bypasses_the_proxy_is_charged_under_its_own_address() {
    for client in [
        ClientIp::x_forwarded_for([PROXY]).unwrap(),
        ClientIp::behind_load_balancer([PROXY]).unwrap(),
        ClientIp::x_forwarded_for(1).unwrap().only_from([PROXY]),
        ClientIp::forwarded([PROXY]).unwrap(),
        ClientIp::header("x-real-ip", [PROXY]).unwrap(),
        ClientIp::behind_cloudflare(),
        ClientIp::behind_fly(),
    ] {
        let site = Site::start(client).await;
        site.direct(ALICE).await.assert_charged_for_all("alice").await;
        site.direct(BOB).await.assert_charged_for_all("bob").await;
    }
}

/// Without trust in the socket there is no client address, so the request is rejected.
#[tokio::test]
async fn a_unix_socket_that_is_not_trusted_is_400() {
    let site = Site::start(ClientIp::x_forwarded_for([PROXY]).unwrap()).await;
    let reply = site.through(ProxyChain::UnixSocket, ALICE).await.send(1, &[("x-forwarded-for", BOB)]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
}
