//! The PROXY protocol in front of a proxy, which reads it in place of this crate.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};

use super::caller::{ALICE, BOB, BUDGET, Caller};
use super::front::{BALANCER, Lines, Proxy};
use super::program::Program;
use super::site::{Site, behind_the_proxy, routes};
use crate::support::http::{Connection, connect_from, serve};
use crate::support::{ports::free_port, redis_server::Directory};

/// A HAProxy that forwards TCP from [`BALANCER`], and names the client in version 2 of the protocol.
struct Balancer {
    address: SocketAddr,
    _program: Program,
}

impl Balancer {
    async fn start(to: SocketAddr) -> Self {
        let start = move || {
            let (directory, port) = (Directory::new(), free_port());
            let lines = format!(
                "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s
listen balancer\n bind 127.0.0.1:{port}\n source {BALANCER}\n server one {to} send-proxy-v2\n"
            );
            let file = directory.write("haproxy.cfg", lines);
            let _program = Program::start(&["haproxy", "-db", "-f", &file], directory, &[port]);
            Self { address: (Ipv4Addr::LOCALHOST, port).into(), _program }
        };
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    async fn caller(&self, source: &str) -> Caller {
        Caller::Http1(Connection::open_from(source.parse().unwrap(), self.address).await)
    }
}

async fn each_client_has_one_budget(proxy: Proxy) {
    if !Proxy::Haproxy.is_installed() {
        return;
    }
    let Some(site) = Site::start(behind_the_proxy(), proxy, Lines::ProxyProtocol).await else { return };
    let balancer = Balancer::start(site.front.address()).await;
    balancer.caller(ALICE).await.assert_charged_for_all("alice").await;
    balancer.caller(BOB).await.assert_charged_for_all("bob").await;
    // What a client writes itself comes after what the load balancer has written.
    let answer = announce(balancer.address, ALICE, "127.0.0.4").await;
    assert!(answer.contains(" 400 "), "{proxy:?}: {answer}");
}

/// Sends a request that names another client in version 1 of the protocol, and returns the answer.
async fn announce(to: SocketAddr, source: &str, client: &str) -> String {
    request_after(format!("PROXY TCP4 {client} 127.0.0.1 50000 80\r\n").as_bytes(), to, source).await
}

async fn request_after(announcement: &[u8], to: SocketAddr, source: &str) -> String {
    let mut stream = connect_from(source.parse::<IpAddr>().unwrap(), to).await;
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(&[announcement, request].concat()).await.unwrap();
    let mut answer = Vec::new();
    // A server that refuses the first line may close the connection before it has read the others.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn each_client_has_one_budget_behind_the_proxy_protocol_and_nginx() {
    each_client_has_one_budget(Proxy::Nginx).await;
}

#[tokio::test]
async fn each_client_has_one_budget_behind_the_proxy_protocol_and_haproxy() {
    each_client_has_one_budget(Proxy::Haproxy).await;
}

#[tokio::test]
async fn each_client_has_one_budget_behind_the_proxy_protocol_and_varnish() {
    each_client_has_one_budget(Proxy::Varnish).await;
}

#[tokio::test]
async fn nginx_lets_only_the_load_balancer_name_clients() {
    let Some(site) = Site::start(behind_the_proxy(), Proxy::Nginx, Lines::ProxyProtocol).await else { return };
    for left in (0..BUDGET).rev() {
        // Each of Alice's requests names another client.
        let answer = announce(site.front.address(), ALICE, &format!("127.0.1.{left}")).await;
        assert!(answer.contains(&format!(";r={left};")), "{answer}");
    }
    let answer = announce(site.front.address(), ALICE, "127.0.1.99").await;
    assert!(answer.contains(" 429 "), "{answer}");
}

#[tokio::test]
async fn haproxy_lets_only_the_load_balancer_name_clients() {
    let Some(site) = Site::start(behind_the_proxy(), Proxy::Haproxy, Lines::ProxyProtocol).await else { return };
    let answer = announce(site.front.address(), ALICE, BOB).await;
    assert!(answer.contains(" 400 "), "{answer}");
    site.assert_each_client_has_one_budget().await;
}

/// Nobody can name a client to a server without a proxy, and no request passes uncounted.
#[tokio::test]
async fn a_server_answers_400_to_the_proxy_protocol() {
    let limit = Policy::per_minute("p", u64::try_from(BUDGET).unwrap()).unwrap();
    let router: Router = routes().layer(RateLimitLayer::new(Limiter::new(MemoryStore::new()), limit, PeerIp::new()));
    let address = serve(router).await;
    // From 127.0.0.3, port 50000, to 127.0.0.1, port 80, over TCP and IPv4.
    let version_2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x03\x7f\0\0\x01\xc3\x50\0\x50";
    for answer in [announce(address, ALICE, BOB).await, request_after(version_2, address, ALICE).await] {
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}
