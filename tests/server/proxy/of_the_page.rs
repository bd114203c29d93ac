//! The configurations of the page: each client is charged under its own address, whatever headers it sends.

use std::net::Ipv6Addr;

use tollgate::ClientIp;

use super::caller::{ALICE, BOB, BUDGET, Caller};
use super::front::{Lines, Proxy, has_ipv6};
use super::site::Site;
use crate::support::http::Connection;

async fn nothing_forged_changes_the_client(proxy: Proxy) {
    let Some(site) = Site::plain(proxy).await else { return };
    site.assert_each_client_has_one_budget().await;
    // Also for a list of trusted proxies, and for their number.
    let by_prefix = ClientIp::x_forwarded_for(["127.0.0.1"]).unwrap();
    let by_number = ClientIp::x_forwarded_for(1).unwrap().only_from(["127.0.0.1"]);
    for client in [by_prefix, by_number] {
        let Some(site) = Site::start(client, proxy, Lines::Plain).await else { return };
        site.assert_each_client_has_one_budget().await;
    }
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_the_nginx_of_the_page() {
    nothing_forged_changes_the_client(Proxy::Nginx).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_haproxy() {
    nothing_forged_changes_the_client(Proxy::Haproxy).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_caddy() {
    nothing_forged_changes_the_client(Proxy::Caddy).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_behind_varnish() {
    nothing_forged_changes_the_client(Proxy::Varnish).await;
}

#[tokio::test]
async fn forged_headers_change_nothing_where_haproxy_sets_forwarded() {
    let client = ClientIp::forwarded(["127.0.0.1"]).unwrap();
    let Some(site) = Site::start(client, Proxy::Haproxy, Lines::Forwarded).await else { return };
    site.assert_each_client_has_one_budget().await;
}

/// A proxy removes the fields that Connection names, and must do so before it adds its own.
#[tokio::test]
async fn a_client_cannot_make_a_proxy_leave_out_the_address() {
    for proxy in [Proxy::Nginx, Proxy::Haproxy, Proxy::Caddy, Proxy::Varnish] {
        let Some(site) = Site::plain(proxy).await else { continue };
        for left in (0..BUDGET).rev() {
            let lines = [("connection", "keep-alive, x-forwarded-for"), ("x-forwarded-for", BOB)];
            let reply = site.caller(ALICE).await.get("/", &lines[..1 + left % 2]).await;
            if let Proxy::Varnish = proxy {
                // Refuses the request itself.
                assert_eq!((reply.status.as_u16(), reply.header("ratelimit")), (400, None));
            } else {
                assert!(reply.header("ratelimit").unwrap().contains(&format!(";r={left};")), "{proxy:?}: {reply:?}");
            }
        }
        site.caller(BOB).await.assert_charged_for_all("bob").await;
    }
}

/// In Forwarded, an IPv6 address is in brackets and quotes, and the proxy has to write them.
#[tokio::test]
async fn a_client_with_an_ipv6_address_has_a_budget_where_haproxy_sets_forwarded() {
    if !has_ipv6() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let client = ClientIp::forwarded(["127.0.0.1"]).unwrap();
    let Some(site) = Site::start(client, Proxy::Haproxy, Lines::Forwarded).await else { return };
    let address = (Ipv6Addr::LOCALHOST, site.front.address().port()).into();
    Caller::Http1(Connection::open(address).await).assert_charged_for_all("a client with IPv6").await;
}
