//! HTTP/2 in front of the application: one connection of a client carries many requests at once.

use std::{net::IpAddr, sync::Arc};

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::caller::{ALICE, BOB, BUDGET, Caller};
use super::front::{Front, Proxy};
use super::site::Site;
use crate::support::http::{Http2, connect_from};

/// Connects from this address; over TLS, unless the proxy has HTTP/2 only without.
async fn connect(front: &Front, source: &str, is_encrypted: bool) -> Http2 {
    let address = front.http2_address();
    let stream = connect_from(source.parse::<IpAddr>().unwrap(), address).await;
    if !is_encrypted {
        return Http2::over(stream, &format!("http://{address}")).await;
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(front.certificates.pem().as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    Http2::over(stream, &format!("https://localhost:{}", address.port())).await
}

async fn each_client_has_one_budget(proxy: Proxy, is_encrypted: bool) {
    let Some(site) = Site::plain(proxy).await else { return };
    // All requests of Alice at once.
    let alice = connect(&site.front, ALICE, is_encrypted).await;
    let mut tasks = JoinSet::new();
    for _ in 0..2 * BUDGET {
        let mut alice = alice.clone();
        tasks.spawn(async move { alice.get("/", &[("x-forwarded-for", BOB)]).await.status.as_u16() });
    }
    let mut statuses = tasks.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; BUDGET], [429; BUDGET]].concat());
    Caller::Http2(connect(&site.front, BOB, is_encrypted).await).assert_charged_for_all("bob").await;
}

#[tokio::test]
async fn each_client_has_one_budget_over_http2_to_nginx() {
    each_client_has_one_budget(Proxy::Nginx, true).await;
}

#[tokio::test]
async fn each_client_has_one_budget_over_http2_to_haproxy() {
    each_client_has_one_budget(Proxy::Haproxy, true).await;
}

#[tokio::test]
async fn each_client_has_one_budget_over_http2_to_caddy() {
    each_client_has_one_budget(Proxy::Caddy, true).await;
}

/// Varnish has no TLS.
#[tokio::test]
async fn each_client_has_one_budget_over_http2_to_varnish() {
    each_client_has_one_budget(Proxy::Varnish, false).await;
}
