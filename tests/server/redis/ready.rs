//! `Limiter::ready`, for start-up and health checks.

use std::time::{Duration, Instant};

use tollgate::{Algorithm, Error, ErrorKind, Limiter, MemoryStore, Policy, RedisStore, decision::Source};

use super::{address::MINIMAL_ACL, policy};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;
use crate::support::{asserts_times, connect, until};

/// Upper bound of an immediate result, far below the timeout of five seconds.
const IMMEDIATE: Duration = Duration::from_secs(2);

fn at(url: &str) -> Limiter {
    Limiter::new(RedisStore::open(url).unwrap())
}

/// The error of `ready`, which must come immediately.
async fn immediate_error(limiter: &Limiter) -> Error {
    let start = Instant::now();
    let error = limiter.ready().await.unwrap_err();
    assert!(start.elapsed() < IMMEDIATE, "{:?}", start.elapsed());
    error
}

#[tokio::test]
async fn a_limiter_that_is_ready_has_connected_and_charged_nothing() {
    Limiter::new(MemoryStore::new()).ready().await.unwrap();
    let server = RedisServer::start();
    let limiter = Limiter::new(connect(&server.url()));
    for _ in 0..3 {
        limiter.ready().await.unwrap();
    }
    assert!(server.command("DBSIZE").starts_with(":0"));
    assert_eq!(limiter.check("k", &policy(), 1).await.unwrap().source(), Source::Store);
}

#[tokio::test]
async fn a_refusal_of_the_server_is_returned_at_once_with_the_servers_text() {
    let mut gone = RedisServer::start();
    gone.kill();
    let error = immediate_error(&at(&gone.url())).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("Connection refused"), "{error}");

    let closed = RedisServer::start_with(&["--requirepass", "hunter2"]);
    for (login, text) in [("//", "NOAUTH HELLO must be"), ("//:wrong@", "WRONGPASS invalid username-password pair")] {
        let error = immediate_error(&at(&closed.url().replace("//", login))).await;
        assert_eq!(error.kind(), ErrorKind::StoreMisconfigured);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn ready_reports_each_missing_permission() {
    let server = RedisServer::start();
    for command in ["evalsha", "time", "getrange", "setrange", "pexpire", "unlink"] {
        let lacks = |word: &&str| word.strip_prefix('+') != Some(command);
        let least = MINIMAL_ACL.split_whitespace().filter(lacks).collect::<Vec<_>>().join(" ");
        server.command(&format!("ACL SETUSER gate reset on >hunter2 {least}"));
        let limiter = at(&server.url().replace("//", "//gate:hunter2@"));
        // Without permission for TIME the process uses its own clock.
        if command == "time" {
            limiter.ready().await.unwrap();
            continue;
        }
        let error = immediate_error(&limiter).await;
        assert_eq!(error.kind(), ErrorKind::StoreMisconfigured);
        // Redis 7.0 and older do not name a command that a script calls.
        let error_text = [&*format!("'{command}'"), "can't run this command"];
        assert!(error_text.iter().any(|text| error.to_string().contains(text)), "{error}");
        server.command(&format!("ACL SETUSER gate {MINIMAL_ACL}"));
        limiter.ready().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_cannot_write_is_not_ready() {
    let (master, server) = (RedisServer::start_with(&RedisServer::IMMEDIATE_REPLICATION), RedisServer::start());
    let limiter = at(&server.url());
    server.command("CONFIG SET maxmemory 1");
    let error = immediate_error(&limiter).await;
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("OOM command not allowed"), "{error}");
    server.command("CONFIG SET maxmemory 0");
    limiter.ready().await.unwrap();
    server.command(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    until("the replica is in sync", || server.command("INFO replication").contains("master_link_status:up"));
    let error = immediate_error(&at(&server.url())).await;
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("READONLY You can't"), "{error}");
}

#[tokio::test]
async fn ready_waits_for_a_distant_server() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::Latency(Duration::from_millis(220)));
    let builder = RedisStore::builder().deadline(Duration::from_secs(1));
    Limiter::new(builder.open(&proxy.url()).unwrap()).ready().await.unwrap();
}

#[tokio::test]
async fn ready_fails_after_five_seconds_on_a_silent_server() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::BlackHole);
    let limiters = [at(&proxy.url()), Limiter::new(RedisStore::builder().open_cluster([proxy.url()]).unwrap())];
    let checks = limiters.map(|limiter| async move {
        let start = Instant::now();
        let error = limiter.ready().await.unwrap_err();
        let waited = start.elapsed();
        assert!(waited > Duration::from_secs(4), "{waited:?}: {error}");
        assert!(!asserts_times() || waited < Duration::from_secs(6), "{waited:?}: {error}");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("no connection within 5s"), "{error}");
    });
    for check in checks.map(tokio::spawn) {
        check.await.unwrap();
    }
}

#[tokio::test]
async fn law_6_a_revoked_permission_leaves_no_key_without_a_ttl() {
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    for algorithm in algorithms {
        let server = RedisServer::start();
        let policy = Policy::per_hour("p", 10).unwrap().with_algorithm(algorithm);
        let limiter = Limiter::new(RedisStore::builder().deadline(IMMEDIATE).open(&server.url()).unwrap());
        let _ = limiter.check("old", &policy, 1).await.unwrap();
        server.command("ACL SETUSER default -pexpire");
        let error = limiter.check("new", &policy, 1).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::StoreMisconfigured, true), "{error}");
        assert!(server.command("DBSIZE").starts_with(":1"), "{algorithm:?}");
        server.command("ACL SETUSER default +pexpire");
        assert_eq!(limiter.peek("old", &policy).await.unwrap().available(), Some(9), "{algorithm:?}");
    }
}

#[tokio::test]
async fn ready_asks_the_server_although_the_breaker_is_open() {
    let mut server = RedisServer::start();
    let limiter = at(&server.url());
    server.kill();
    while !limiter.is_breaker_open() {
        limiter.check("k", &policy(), 1).await.unwrap_err();
    }
    assert!(immediate_error(&limiter).await.to_string().contains("Connection refused"));
    server.restart();
    let start = Instant::now();
    while let Err(error) = limiter.ready().await {
        // The next dial starts within 400 ms.
        assert!(start.elapsed() < IMMEDIATE, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(limiter.is_breaker_open(), "`ready` closed the breaker");
}

#[tokio::test]
async fn ready_asks_the_master_behind_sentinels() {
    let trio = crate::support::sentinel::Trio::start(Duration::from_secs(60));
    let store = |name| RedisStore::builder().open_sentinel(trio.sentinels.iter().map(RedisServer::url), name).unwrap();
    Limiter::new(store("mymaster")).ready().await.unwrap();
    let error = immediate_error(&Limiter::new(store("another"))).await;
    assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
}

#[tokio::test]
async fn ready_asks_every_master_of_a_cluster() {
    let cluster = crate::support::cluster::Cluster::start();
    let limiter = Limiter::new(RedisStore::builder().open_cluster([cluster.nodes[0].url()]).unwrap());
    limiter.ready().await.unwrap();
    for node in &cluster.nodes {
        assert!(super::calls(node, "evalsha") + super::calls(node, "eval") >= 1);
        node.command("ACL SETUSER default -setrange");
        let error = immediate_error(&limiter).await;
        assert!(error.to_string().contains("'setrange'"), "{error}");
        node.command("ACL SETUSER default +setrange");
    }
    limiter.ready().await.unwrap();
}
