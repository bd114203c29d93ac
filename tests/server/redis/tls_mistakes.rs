//! What the error of a wrong scheme or certificate says.

use std::{net::TcpListener, thread, time::Duration};

use rcgen::{CertificateParams, date_time_ymd};
use tollgate::{Error, ErrorKind, Limiter, RedisStore, store::RedisStoreBuilder};

use super::policy;
use super::tls_server::{Authority, TlsServer, node_arguments};
use crate::support::{ports::free_port, sentinel::Trio};

/// The error of the first check, which waits for the first dial as long as a loaded machine needs.
async fn first_error(builder: RedisStoreBuilder, connect: impl FnOnce(RedisStoreBuilder) -> RedisStore) -> Error {
    let store = connect(builder.first_dial_deadline(Duration::from_secs(20)));
    Limiter::new(store).without_notices().check("k", &policy(), 1).await.unwrap_err()
}

/// Neither server reports the mistake: a plaintext port waits for more data, a TLS port closes the connection.
#[tokio::test]
async fn the_first_error_of_a_wrong_scheme_says_what_to_write_on_a_server_a_cluster_and_behind_sentinels() {
    let (server, trio) = (TlsServer::start("no"), Trio::start(Duration::from_secs(60)));
    let plain = "the server does not speak TLS on this port; write redis:// instead of rediss://";
    let encrypted = "the server speaks TLS on this port; write rediss:// instead of redis://";
    let url = |scheme: &str, port: u16| format!("{scheme}://127.0.0.1:{port}");
    for (url, remedy) in [(url("rediss", server.server.port()), plain), (url("redis", server.port), encrypted)] {
        let of_server = first_error(RedisStore::builder(), |builder| builder.open(&url).unwrap()).await;
        let of_cluster = first_error(RedisStore::builder(), |builder| builder.open_cluster([&url]).unwrap()).await;
        for error in [of_server, of_cluster] {
            assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{url}: {error}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }
    let sentinel = trio.sentinels[0].port();
    // A sentinel that cannot be reached says nothing about the others.
    let unreachable = || url("rediss", free_port());
    for (sentinels, master, remedy) in [
        (vec![url("rediss", sentinel), unreachable()], "rediss://mymaster", plain),
        (vec![url("redis", server.port)], "mymaster", encrypted),
        (vec![url("redis", sentinel)], "rediss://mymaster", plain),
    ] {
        let connect = |builder: RedisStoreBuilder| builder.open_sentinel(&sentinels, master).unwrap();
        let error = first_error(RedisStore::builder(), connect).await;
        assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{sentinels:?} {master}: {error}");
        assert!(error.to_string().contains(remedy), "{sentinels:?} {master}: {error}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_an_error_with_both_names() {
    let authority = Authority::new();
    let identity = authority.issue("redis.example");
    let server = TlsServer::start_with(authority, identity, &["--tls-auth-clients", "no"]);
    let builder = RedisStore::builder().root_certificates(server.authority.pem());
    let error = first_error(builder, |builder| builder.open(&server.url()).unwrap()).await;
    assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
    let text = "the server's certificate is not valid for the name 127.0.0.1; it is valid for redis.example";
    assert!(error.to_string().contains(text), "{error}");
}

/// The nodes of a cluster are named by their addresses unless it is configured otherwise, and certificates have names.
#[tokio::test]
async fn a_node_whose_certificate_lacks_its_announced_address_is_an_error_that_says_how_nodes_announce_names() {
    let authority = Authority::new();
    let identity = authority.issue("localhost");
    let bus = free_port().to_string();
    let arguments = [&["--tls-auth-clients", "no"], &node_arguments(&bus)[..]].concat();
    let server = TlsServer::start_with(authority, identity, &arguments);
    server.own_all_slots();
    let url = server.url().replace("127.0.0.1", "localhost");
    let builder = RedisStore::builder().root_certificates(server.authority.pem());
    let error = first_error(builder, |builder| builder.open_cluster([&url]).unwrap()).await;
    assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
    for text in ["not valid for the name 127.0.0.1", "valid for localhost", "cluster-preferred-endpoint-type hostname"]
    {
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
}

#[tokio::test]
async fn a_cluster_that_announces_ports_without_tls_is_an_error_that_names_its_setting() {
    let authority = Authority::new();
    let identity = authority.issue("127.0.0.1");
    let arguments = ["--tls-auth-clients", "no", "--cluster-node-timeout", "1000"];
    let server = TlsServer::start_with(authority, identity, &arguments);
    server.own_all_slots();
    let builder = RedisStore::builder().root_certificates(server.authority.pem());
    let error = first_error(builder, |builder| builder.open_cluster([server.url()]).unwrap()).await;
    assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
    assert!(error.to_string().contains("set tls-cluster yes on each node"), "{error}");
}

#[tokio::test]
async fn a_certificate_out_of_its_time_is_an_error_with_dates() {
    for (from, until, text) in [
        (2020, 2021, "the server's certificate has expired on Fri, 01 Jan 2021 00:00:00 GMT; here it is "),
        (2099, 2100, "the server's certificate is valid from Thu, 01 Jan 2099 00:00:00 GMT; here it is "),
    ] {
        let authority = Authority::new();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        let identity = authority.sign(params);
        let server = TlsServer::start_with(authority, identity, &["--tls-auth-clients", "no"]);
        let builder = RedisStore::builder().root_certificates(server.authority.pem());
        let error = first_error(builder, |builder| builder.open(&server.url()).unwrap()).await;
        assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.to_string().ends_with(" GMT"), "{error}");
    }
}

/// The number of connections in the last seconds of a minute, to a port that hangs up as a server with TLS does.
#[test]
#[ignore = "long"]
fn long_a_wrong_scheme_is_dialled_every_few_seconds() {
    let server = TlsServer::start("no");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (proxy, target) = (listener.local_addr().unwrap().port(), server.port);
    let (accepted, accepts) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = accepted.send(std::time::Instant::now());
            thread::spawn(move || {
                let mut server = std::net::TcpStream::connect(("127.0.0.1", target)).unwrap();
                let (mut to, mut from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut from, &mut to));
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let limiter = Limiter::new(RedisStore::builder().pool_size(1).open(&format!("redis://127.0.0.1:{proxy}")).unwrap());
    runtime.block_on(async {
        limiter.check("k", &policy(), 1).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(25)).await;
    });
    let times: Vec<_> = accepts.try_iter().collect();
    let start = times[0];
    let late = times.iter().filter(|time| **time - start > Duration::from_secs(15)).count();
    // A dial and its probe, with RESP3 and then RESP2, every 2.5 to 5 s.
    assert!(late <= 5 * 3, "{late} connections in ten seconds");
}
