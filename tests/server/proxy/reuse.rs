//! Connections from a proxy to the application carry the requests of many clients, and a client has many connections.

use tokio::task::JoinSet;

use super::caller::{ALICE, BOB, BUDGET};
use super::{front::Proxy, site::Site};

/// Both clients in turn: the proxy keeps its connection between the requests and sends the next one over it.
async fn two_clients_over_one_connection_have_two_budgets(proxy: Proxy) {
    let Some(site) = Site::plain(proxy).await else { return };
    let (mut alice, mut bob) = (site.caller(ALICE).await, site.caller(BOB).await);
    for left in (0..BUDGET).rev() {
        for caller in [&mut alice, &mut bob] {
            let reply = caller.send(left, &[]).await;
            assert!(reply.header("ratelimit").unwrap().contains(&format!(";r={left};")), "{left}: {reply:?}");
        }
    }
    for caller in [&mut alice, &mut bob] {
        assert_eq!(caller.send(0, &[]).await.status, 429);
    }
    assert!(site.shared_connections() > 0, "{proxy:?} shared no connection, so the test shows nothing");
}

async fn one_client_over_many_connections_has_one_budget(proxy: Proxy) {
    let Some(site) = Site::plain(proxy).await else { return };
    // All connections are open at the same time.
    let mut callers = Vec::new();
    for _ in 0..2 * BUDGET {
        callers.push(site.caller(ALICE).await);
    }
    let mut tasks = JoinSet::new();
    for mut caller in callers {
        tasks.spawn(async move { caller.send(0, &[]).await.status.as_u16() });
    }
    let mut statuses = tasks.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; BUDGET], [429; BUDGET]].concat());
}

#[tokio::test]
async fn two_clients_over_one_connection_of_nginx_have_two_budgets() {
    two_clients_over_one_connection_have_two_budgets(Proxy::Nginx).await;
}

#[tokio::test]
async fn two_clients_over_one_connection_of_haproxy_have_two_budgets() {
    two_clients_over_one_connection_have_two_budgets(Proxy::Haproxy).await;
}

#[tokio::test]
async fn two_clients_over_one_connection_of_caddy_have_two_budgets() {
    two_clients_over_one_connection_have_two_budgets(Proxy::Caddy).await;
}

#[tokio::test]
async fn two_clients_over_one_connection_of_varnish_have_two_budgets() {
    two_clients_over_one_connection_have_two_budgets(Proxy::Varnish).await;
}

#[tokio::test]
async fn one_client_over_many_connections_to_a_proxy_has_one_budget() {
    for proxy in [Proxy::Nginx, Proxy::Haproxy, Proxy::Caddy, Proxy::Varnish] {
        one_client_over_many_connections_has_one_budget(proxy).await;
    }
}
