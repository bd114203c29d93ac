//! `rediss://`: servers with certificates of a test authority.

use std::time::{Duration, Instant};
use std::{env, fs, process::Command};

use tokio::time::sleep;
use tollgate::{ConfigError, ErrorKind, Limiter, RedisStore, redis, store::RedisStoreBuilder};

use super::tls_server::{Authority, Identity, TlsServer};
use super::{policy, warm_up::assert_judged};
use crate::support::link::Link;
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::{Directory, RedisServer};
use crate::support::{connect, says};

/// Not a test: a process whose operating system trusts no readable certificate.
#[tokio::test]
#[ignore = "started by the tests below"]
async fn certificates_process() {
    let url = env::var("TOLLGATE_URL").unwrap();
    let builder = match env::var("TOLLGATE_ROOTS") {
        Ok(pem) => RedisStore::builder().root_certificates(pem),
        Err(_) => RedisStore::builder(),
    };
    match builder.deadline(Duration::from_secs(2)).open(&url) {
        Ok(store) => println!("answered: {:?}", Limiter::new(store).check("k", &policy(), 1).await.is_ok()),
        Err(error) => println!("refused: {error}"),
    }
}

/// What [`certificates_process`] prints, with the certificates of the system in `file`.
fn with_system_certificates(file: &str, url: &str, roots: Option<&str>) -> String {
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["--exact", "redis::tls::certificates_process", "--ignored", "--nocapture"]);
    process.env("SSL_CERT_FILE", file).env("TOLLGATE_URL", url).envs(roots.map(|pem| ("TOLLGATE_ROOTS", pem)));
    String::from_utf8(process.output().unwrap().stdout).unwrap()
}

#[test]
fn a_store_with_own_root_certificates_does_not_read_those_of_the_system() {
    let server = TlsServer::start("no");
    let url = format!("rediss://127.0.0.1:{}", server.port);
    let output = with_system_certificates("/nonexistent/bundle.pem", &url, Some(&server.authority.pem()));
    assert!(output.contains("answered: true"), "{output}");
}

#[test]
fn certificates_of_the_system_that_cannot_be_read_are_a_configuration_error_that_names_the_file() {
    let directory = Directory::new();
    let broken = directory.write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA");
    for file in ["/nonexistent/bundle.pem", &broken] {
        let output = with_system_certificates(file, "rediss://127.0.0.1:1", None);
        assert!(output.contains("refused: ") && output.contains(file), "{output}");
        assert!(output.contains("SSL_CERT_FILE") && output.contains("root_certificates"), "{output}");
    }
    // A store without TLS does not need them.
    let server = RedisServer::start();
    assert!(with_system_certificates("/nonexistent/bundle.pem", &server.url(), None).contains("answered: true"));
}

/// Not a test: a process whose operating system loses its certificates after the first connection.
#[tokio::test]
#[ignore = "started by the test below"]
async fn lost_certificates_process() {
    let [url, admin, file] = ["TOLLGATE_URL", "TOLLGATE_ADMIN", "SSL_CERT_FILE"].map(|name| env::var(name).unwrap());
    let limiter = Limiter::new(connect(&url)).without_notices();
    let _ = limiter.check("k", &policy(), 1).await.unwrap();
    fs::remove_file(file).unwrap();
    let mut admin = redis::Client::open(admin).unwrap().get_connection().unwrap();
    let cut: u64 = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).query(&mut admin).unwrap();
    println!("cut: {}", cut > 0);
    let start = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() && start.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("answered: {}", limiter.check("k", &policy(), 1).await.is_ok());
}

/// Each dial would otherwise read and parse some hundred files.
#[test]
fn the_certificates_of_the_system_are_loaded_once_and_not_at_each_dial() {
    let (server, directory) = (TlsServer::start("no"), Directory::new());
    let file = directory.write("bundle.pem", server.authority.pem());
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["--exact", "redis::tls::lost_certificates_process", "--ignored", "--nocapture"]);
    process.env("SSL_CERT_FILE", file).env("TOLLGATE_URL", server.url()).env("TOLLGATE_ADMIN", server.server.url());
    let output = String::from_utf8(process.output().unwrap().stdout).unwrap();
    assert!(output.contains("cut: true") && output.contains("answered: true"), "{output}");
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_is_reached_through_tls() {
    let server = TlsServer::start("no");
    let limiter = server.connect(RedisStore::builder().root_certificates(server.authority.pem()));
    assert_eq!(limiter.check("k", &policy(), 1).await.unwrap().available(), Some(99_999));
}

#[tokio::test]
async fn the_first_check_through_tls_is_judged_by_redis_also_over_a_round_trip_of_twenty_milliseconds() {
    let server = TlsServer::start("no");
    let url = Link::far_from(server.port, Duration::from_millis(20)).url().replace("redis://", "rediss://");
    let builder = RedisStore::builder().root_certificates(server.authority.pem());
    assert_judged(|| builder.clone().open(&url).unwrap()).await;
}

/// A dial begins during the outage, and its handshake is lost for ever. The dial goes on, because a server may be that
/// busy: a further dial would begin after more than three seconds. Waits for real connections and a real server.
#[tokio::test]
async fn after_an_outage_checks_are_judged_again_at_once_although_a_proxy_has_swallowed_the_handshake() {
    let server = TlsServer::start("no");
    let proxy = Proxy::to(server.port);
    let builder = RedisStore::builder().root_certificates(server.authority.pem()).pool_size(1);
    let builder = builder.deadline(Duration::from_millis(200)).first_dial_deadline(Duration::from_secs(5));
    let limiter = Limiter::new(builder.open(&format!("rediss://127.0.0.1:{}", proxy.port())).unwrap());
    assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());

    proxy.set(Fault::BlackHole);
    let dialled = proxy.accepted();
    while proxy.accepted() == dialled {
        let _ = limiter.check("k", &policy(), 1).await;
        sleep(Duration::from_millis(10)).await;
    }
    // Time to find that the handshake is slow.
    sleep(Duration::from_millis(600)).await;

    proxy.set(Fault::Pass);
    let end = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(end.elapsed() < Duration::from_secs(2), "{:?}", end.elapsed());
}

#[tokio::test]
async fn a_server_whose_certificate_is_not_trusted_is_a_misconfiguration() {
    let server = TlsServer::start("no");
    for builder in [RedisStore::builder(), RedisStore::builder().root_certificates(Authority::new().pem())] {
        let error = server.connect(builder).check("k", &policy(), 1).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::StoreMisconfigured, false), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_gets_it() {
    let server = TlsServer::start("yes");
    let Identity { certificate, key } = server.authority.issue("gate");
    let builder = RedisStore::builder().root_certificates(server.authority.pem());
    let limiter = server.connect(builder.clone().client_certificate((certificate, key)));
    assert!(limiter.check("k", &policy(), 1).await.is_ok());
    let error = server.connect(builder).check("k", &policy(), 1).await.unwrap_err();
    assert!(!error.may_have_charged(), "{error}");
}

/// The configuration error of connecting to the URL.
fn config_error(builder: RedisStoreBuilder, url: &str) -> ConfigError {
    builder.open(url).unwrap_err()
}

#[test]
fn a_certificate_that_cannot_be_read_is_a_configuration_error_that_names_the_setting() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (Identity { certificate, key }, stranger) = (authority.issue("gate"), other.issue("gate"));
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let roots = |pem: &str| RedisStore::builder().root_certificates(pem);
    let client = |chain: &str, key: &str| RedisStore::builder().client_certificate((chain, key));
    for (builder, setting, reason) in [
        (roots(nonsense), "root_certificates", "invalid peer certificate"),
        (roots(""), "root_certificates", "there is no certificate"),
        (roots("/etc/ssl/redis.pem"), "root_certificates", "there is no certificate"),
        (roots("-----BEGIN CERTIFICATE-----\nAAAA"), "root_certificates", "cannot be read"),
        (client("", &key), "client_certificate", "there is no certificate"),
        (client(&certificate, ""), "client_certificate", "no private key"),
        (client(&certificate, &certificate), "client_certificate", "no private key"),
        (client(&certificate, &stranger.key), "client_certificate", "KeyMismatch"),
    ] {
        let error = config_error(builder, "rediss://127.0.0.1:1");
        assert!(error.to_string().starts_with(&format!("`{setting}`: ")), "{error}");
        assert!(error.to_string().contains(reason) && error.to_string().contains("std::fs::read"), "{error}");
    }
    assert!(client(&certificate, &key).root_certificates(authority.pem()).open("rediss://127.0.0.1:1").is_ok());
}

#[test]
fn certificates_for_an_address_without_tls_are_a_configuration_error_that_says_rediss() {
    let authority = Authority::new();
    let Identity { certificate, key } = authority.issue("gate");
    for builder in [
        RedisStore::builder().root_certificates(authority.pem()),
        RedisStore::builder().client_certificate((certificate, key)),
    ] {
        for url in
            ["redis://:hunter2@127.0.0.1:1", "valkey://127.0.0.1:1", "unix:///run/redis.sock", "unix:/run/r.sock"]
        {
            let error = config_error(builder.clone(), url);
            says(&error, "certificates are set, but the URL is without TLS, ");
            says(&error, "write rediss://");
        }
        let mixed = builder.clone().open_cluster(["rediss://127.0.0.1:1", "redis://127.0.0.1:2"]).unwrap_err();
        says(mixed, "certificates are set, but the URL is without TLS, ");
        {
            let plain = ["redis://127.0.0.1:1"];
            let error = builder.clone().open_sentinel(plain, "mymaster").unwrap_err();
            says(error, "certificates are set, but the URL is without TLS, ");
            // The certificates apply to the master.
            assert!(builder.open_sentinel(plain, "rediss://mymaster").is_ok());
        }
    }
}

#[test]
fn sentinels_with_tls_and_a_master_without_are_a_configuration_error_that_says_what_to_write() {
    let connect = |master| RedisStore::builder().open_sentinel(["rediss://127.0.0.1:1"], master);
    for master in ["mymaster", "redis://:hunter2@mymaster/1"] {
        let error = connect(master).unwrap_err();
        says(&error, r#"the sentinels are reached through TLS, but their master "mymaster" is not, "#);
        says(&error, "write rediss://mymaster for the master");
    }
    assert!(connect("rediss://mymaster").is_ok());
}
