//! TLS in every mode: RESP2, IPv6, a cluster, sentinels; and what no output shows.

use std::time::Duration;

use rcgen::CertificateParams;
use tollgate::{Limiter, RedisStore, store::RedisStoreBuilder};

use super::policy;
use super::tls_server::{Authority, Identity, TlsServer, node_arguments};
use crate::support::ports::free_port;

/// A server that shows a certificate for this machine's addresses, and requires one of its clients.
fn server(arguments: &[&str]) -> TlsServer {
    let authority = Authority::new();
    let names = ["127.0.0.1", "::1", "localhost"].map(str::to_owned);
    let identity = authority.sign(CertificateParams::new(names).unwrap());
    TlsServer::start_with(authority, identity, &[&["--tls-auth-clients", "yes"], arguments].concat())
}

fn builder(server: &TlsServer) -> RedisStoreBuilder {
    let Identity { certificate, key } = server.authority.issue("gate");
    // A long deadline, because a handshake in a debug build is slow on a busy machine.
    let builder = RedisStore::builder().deadline(Duration::from_secs(10)).first_dial_deadline(Duration::from_secs(10));
    builder.root_certificates(server.authority.pem()).client_certificate((certificate, key))
}

async fn is_judged(store: RedisStore) {
    let limiter = Limiter::new(store).without_notices();
    for left in [99_999, 99_998] {
        assert_eq!(limiter.check("k", &policy(), 1).await.unwrap().available(), Some(left));
    }
    limiter.reset("k", &policy()).await.unwrap();
}

#[tokio::test]
async fn mutual_tls_works_with_resp2_and_over_ipv6() {
    let server = server(&["--bind", "127.0.0.1", "::1"]);
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        for protocol in ["", "?protocol=resp2"] {
            let url = format!("rediss://{host}:{}/{protocol}", server.port);
            is_judged(builder(&server).open(&url).unwrap()).await;
        }
    }
}

#[tokio::test]
async fn mutual_tls_works_on_a_cluster() {
    let server = server(&node_arguments(&free_port().to_string()));
    server.own_all_slots();
    is_judged(builder(&server).open_cluster([server.url()]).unwrap()).await;
}

#[tokio::test]
async fn mutual_tls_works_with_sentinels_and_their_master() {
    let master = server(&[]);
    let sentinel = master.start_sentinel(master.port, "yes");
    is_judged(builder(&master).open_sentinel([&sentinel.url], "rediss://mymaster").unwrap()).await;
}

/// The text of a key between its lines of PEM.
fn body(pem: &str) -> &str {
    pem.lines().nth(1).unwrap()
}

#[tokio::test]
async fn law_10_no_output_shows_a_private_key_or_a_password() {
    let (server, other) = (server(&[]), Authority::new());
    let Identity { certificate, key } = server.authority.issue("gate");
    let stranger = other.issue("gate");
    let url = format!("rediss://gate:hunter2@127.0.0.1:{}", server.port);
    let mut shown = Vec::new();
    // Refused when it is read: the key of another certificate, a cut key, the arguments the wrong way round.
    for (chain, key) in
        [(&certificate, &stranger.key), (&certificate, &key[..key.len() / 2].to_owned()), (&key, &certificate)]
    {
        let builder = RedisStore::builder().root_certificates(server.authority.pem());
        let builder = builder.client_certificate((chain.as_str(), key.as_str()));
        shown.push(format!("{builder:?}"));
        let error = builder.open(&url).unwrap_err();
        shown.push(format!("{error} {error:?}"));
    }
    // Refused by the server: the certificate, and then the login.
    for (certificate, key) in [(&stranger.certificate, &stranger.key), (&certificate, &key)] {
        let builder = RedisStore::builder().root_certificates(server.authority.pem());
        let builder = builder.client_certificate((certificate.as_str(), key.as_str()));
        let store = builder.first_dial_deadline(Duration::from_secs(10)).open(&url).unwrap();
        shown.push(format!("{store:?}"));
        let limiter = Limiter::new(store).without_notices();
        let error = limiter.check("k", &policy(), 1).await.unwrap_err();
        shown.push(format!("{error} {error:?} {limiter:?}"));
        let error = limiter.ready().await.unwrap_err();
        shown.push(format!("{error} {error:?}"));
    }
    assert!(shown.iter().any(|text| text.contains("WRONGPASS")), "{shown:#?}");
    for text in &shown {
        assert!(!text.contains("hunter2") && !text.contains("PRIVATE KEY"), "{text}");
        for key in [&key, &stranger.key] {
            assert!(!text.contains(&body(key)[..16]), "{text}");
        }
    }
}
