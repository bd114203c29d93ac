//! Logins and certificates that are replaced while the process runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, io, process::Command};

use tollgate::{Error, ErrorKind, Limiter, RedisStore};

use super::tls_server::{Authority, Identity, TlsServer};
use super::{address::MINIMAL_ACL, policy};
use crate::support::redis_server::{Directory, RedisServer};
use crate::support::sentinel::Trio;

/// A value that the operator replaces.
#[derive(Clone)]
struct Secret<T>(Arc<Mutex<T>>);

impl<T: Clone> Secret<T> {
    fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    fn set(&self, value: T) {
        *self.0.lock().unwrap() = value;
    }

    fn get(&self) -> T {
        self.0.lock().unwrap().clone()
    }
}

/// Sends checks until it is stopped, and keeps those without a verdict.
struct Load {
    stops: Arc<AtomicBool>,
    judged: Arc<AtomicUsize>,
    failed: Vec<tokio::task::JoinHandle<Vec<Error>>>,
}

impl Load {
    fn start(limiter: &Limiter) -> Self {
        let (stops, judged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let failed = (0..16).map(|_| {
            let (limiter, stops, judged) = (limiter.clone(), Arc::clone(&stops), Arc::clone(&judged));
            tokio::spawn(async move {
                let mut failed = Vec::new();
                while !stops.load(Ordering::Relaxed) {
                    match limiter.check("k", &policy(), 1).await {
                        Ok(_) => drop(judged.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => failed.push(error),
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                failed
            })
        });
        let failed = failed.collect();
        Self { stops, judged, failed }
    }

    /// Waits until `more` further checks were judged.
    async fn judges(&self, more: usize) {
        let (start, before) = (Instant::now(), self.judged.load(Ordering::Relaxed));
        while self.judged.load(Ordering::Relaxed) < before + more {
            assert!(start.elapsed() < Duration::from_secs(20), "checks get no verdict");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(self) -> Vec<Error> {
        self.stops.store(true, Ordering::Relaxed);
        let mut failed = Vec::new();
        for task in self.failed {
            failed.extend(task.await.unwrap());
        }
        failed
    }
}

/// The ids of the store's connections.
fn connections(server: &RedisServer) -> Vec<String> {
    let list = server.command("CLIENT LIST TYPE normal");
    let of_gate = list.lines().filter(|line| line.contains("user=gate"));
    of_gate.filter_map(|line| line.split_once("id=")?.1.split(' ').next().map(str::to_owned)).collect()
}

/// Cuts one connection after the other, and waits for its successor.
async fn cut_in_turn(server: &RedisServer, load: &Load) {
    for id in connections(server) {
        server.command(&format!("CLIENT KILL ID {id}"));
        load.judges(500).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_replaced_under_load_without_a_refused_login() {
    let server = RedisServer::start();
    server.command(&format!("ACL SETUSER gate on >old-secret {MINIMAL_ACL} +info"));
    let secret = Secret::new("old-secret");
    let source = secret.clone();
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(10))
        // It would answer for the store after the checks in flight on a connection that is cut.
        .breaker(None)
        .login_from(move || Ok(("gate", source.get())))
        .open(&server.url())
        .unwrap();
    let limiter = Limiter::new(store).without_notices();
    let load = Load::start(&limiter);
    load.judges(200).await;
    // The order of the page on operations.
    server.command("ACL SETUSER gate >new-secret");
    secret.set("new-secret");
    server.command("ACL SETUSER gate <old-secret");
    // A connection that breaks within a second counts as a failed dial.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    cut_in_turn(&server, &load).await;
    let failed = load.stop().await;
    // Checks that were in flight on a connection that was cut, at most one of each task and connection.
    assert!(failed.iter().all(|error| error.kind() == ErrorKind::Unavailable), "{failed:?}");
    assert!(failed.len() <= 32, "{failed:?}");

    // A source that is wrong or fails is a misconfiguration that shows no password, until it is corrected.
    for text in ["WRONGPASS", "login_from has failed: no such file"] {
        let (source, shown) = (secret.clone(), text);
        secret.set("third-secret");
        let login = move || match shown {
            "WRONGPASS" => Ok(("gate", source.get())),
            _ if source.get() == "third-secret" => Err(io::Error::other("no such file")),
            _ => Ok(("gate", source.get())),
        };
        let builder = RedisStore::builder().first_dial_deadline(Duration::from_secs(10)).login_from(login);
        let limiter = Limiter::new(builder.open(&server.url()).unwrap()).without_notices();
        let error = limiter.check("k", &policy(), 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
        assert!(error.to_string().contains(text) && !error.to_string().contains("secret"), "{error}");
        secret.set("new-secret");
        let start = Instant::now();
        while limiter.check("k", &policy(), 1).await.is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "a corrected login is not used");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_and_roots_are_replaced_while_the_process_runs() {
    let server = TlsServer::start("yes");
    let gate = |authority: &Authority| {
        let Identity { certificate, key } = authority.issue("gate");
        (certificate.into_bytes(), key.into_bytes())
    };
    let (roots, client) = (Secret::new(server.authority.pem().into_bytes()), Secret::new(gate(&server.authority)));
    let (of_roots, of_client) = (roots.clone(), client.clone());
    let builder = RedisStore::builder()
        .root_certificates(move || Ok(of_roots.get()))
        .client_certificate(move || Ok(of_client.get()));
    let limiter = server.connect(builder).without_notices();
    assert!(limiter.check("k", &policy(), 1).await.is_ok());

    // First both authorities are trusted on both sides, then the certificates change, then the old authority goes.
    let (new, directory) = (Authority::new(), Directory::new());
    let both = format!("{}{}", server.authority.pem(), new.pem());
    roots.set(both.clone().into_bytes());
    let identity = new.issue("127.0.0.1");
    let set = |name: &str, file: &str| {
        let reply = server.server.command(&format!("CONFIG SET {name} {file}"));
        assert!(reply.starts_with("+OK") || reply.is_empty(), "{name}: {reply}");
    };
    set("tls-ca-cert-file", &directory.write("both.crt", both));
    let (certificate, key) =
        (directory.write("new.crt", identity.certificate), directory.write("new.key", identity.key));
    server.server.command(&format!("CONFIG SET tls-cert-file {certificate} tls-key-file {key}"));
    client.set(gate(&new));
    set("tls-ca-cert-file", &directory.write("new-ca.crt", new.pem()));
    roots.set(new.pem().into_bytes());
    server.server.command("CLIENT KILL TYPE normal");
    let start = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", limiter.check("k", &policy(), 1).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // A file that is half written fails the dial, and not the process.
    roots.set(b"-----BEGIN CERTIFICATE-----\nAAAA".to_vec());
    server.server.command("CLIENT KILL TYPE normal");
    let start = Instant::now();
    loop {
        match limiter.check("k", &policy(), 1).await {
            Err(error) if error.kind() == ErrorKind::StoreMisconfigured => {
                assert!(error.to_string().contains("root_certificates"), "{error}");
                break;
            }
            _ => assert!(start.elapsed() < Duration::from_secs(10), "roots that cannot be parsed are not reported"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    roots.set(new.pem().into_bytes());
    let start = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "corrected roots are not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The permission in the documentation of `RedisStore` for a user of the sentinels.
const SENTINEL_ACL: &str = "-@all +sentinel|get-master-addr-by-name";

#[tokio::test]
async fn sentinels_and_their_master_have_logins_of_their_own_that_can_be_replaced() {
    let documented = include_str!("../../../src/store/redis/store.rs");
    assert!(documented.contains(SENTINEL_ACL), "the documentation has another ACL");
    let trio = Trio::start(Duration::from_secs(60));
    for sentinel in &trio.sentinels {
        sentinel.command(&format!("ACL SETUSER finder on >of-sentinels {SENTINEL_ACL}"));
    }
    trio.master.command(&format!("ACL SETUSER gate on >of-master {MINIMAL_ACL} +role"));
    let urls: Vec<_> = trio.sentinels.iter().map(RedisServer::url).collect();
    let connect = |sentinel: &'static str, master: &'static str| {
        let builder = RedisStore::builder().first_dial_deadline(Duration::from_secs(10));
        let builder = builder.sentinel_login_from(move || Ok(("finder", sentinel)));
        let builder = builder.login_from(move || Ok(("gate", master)));
        Limiter::new(builder.open_sentinel(&urls, Trio::NAME).unwrap()).without_notices()
    };
    let _ = connect("of-sentinels", "of-master").check("k", &policy(), 1).await.unwrap();
    for (sentinel, master) in [("of-master", "of-master"), ("of-sentinels", "of-sentinels")] {
        let error = connect(sentinel, master).check("k", &policy(), 1).await.unwrap_err();
        assert!(error.to_string().contains("WRONGPASS") && !error.to_string().contains("of-"), "{error}");
    }
}

/// Not a test: a process that connects before it installs a cryptography provider.
#[tokio::test]
#[ignore = "started by the test below"]
async fn provider_process() {
    let url = env::var("TOLLGATE_URL").unwrap();
    let builder = RedisStore::builder().root_certificates(env::var("TOLLGATE_ROOTS").unwrap());
    let store = builder.deadline(Duration::from_secs(10)).open(&url).unwrap();
    println!("answered: {}", Limiter::new(store).check("k", &policy(), 1).await.is_ok());
    println!("installed: {}", rustls::crypto::ring::default_provider().install_default().is_ok());
}

#[test]
fn an_application_can_install_its_cryptography_provider_after_a_store_has_connected() {
    let server = TlsServer::start("no");
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["--exact", "redis::rotation::provider_process", "--ignored", "--nocapture"]);
    process.env("TOLLGATE_URL", server.url()).env("TOLLGATE_ROOTS", server.authority.pem());
    let output = String::from_utf8(process.output().unwrap().stdout).unwrap();
    assert!(output.contains("answered: true") && output.contains("installed: true"), "{output}");
}
