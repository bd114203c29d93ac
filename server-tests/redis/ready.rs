//! `Limiter::ready`, for start-up and health checks.

use std::time::{Duration, Instant};

use tollgate::{Algorithm, Error, ErrorKind, Limiter, MemoryStore, Policy, RedisStore, decision::Source};

use super::{address::LEAST, policy};
use crate::support::{
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
    until,
};

/// Far below the patience of five seconds.
const AT_ONCE: Duration = Duration::from_secs(2);

fn at(url: &str) -> Limiter {
    Limiter::new(RedisStore::connect(url).unwrap())
}

/// The error that is told at once.
async fn refused(limiter: &Limiter) -> Error {
    let start = Instant::now();
    let error = limiter.ready().await.unwrap_err();
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    error
}

#[tokio::test]
async fn a_limiter_that_is_ready_has_connected_and_charged_nothing() {
    Limiter::new(MemoryStore::new()).ready().await.unwrap();
    let server = RedisServer::start();
    let limiter = at(&server.url());
    for _ in 0..3 {
        limiter.ready().await.unwrap();
    }
    assert!(server.command("DBSIZE").starts_with(":0"));
    assert_eq!(limiter.check("k", &policy(), 1).await.unwrap().source(), Source::Store);
}

#[tokio::test]
async fn a_server_that_refuses_is_told_at_once_in_its_own_words() {
    let mut gone = RedisServer::start();
    gone.kill();
    let error = refused(&at(&gone.url())).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("Connection refused"), "{error}");

    let closed = RedisServer::start_with(&["--requirepass", "hunter2"]);
    for (login, text) in [("//", "NOAUTH HELLO must be"), ("//:wrong@", "WRONGPASS invalid username-password pair")] {
        let error = refused(&at(&closed.url().replace("//", login))).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn a_permission_that_checks_need_and_lack_is_told() {
    let server = RedisServer::start();
    for command in ["evalsha", "time", "get", "getrange", "setrange", "pexpire", "unlink"] {
        let lacks = |word: &&str| word.strip_prefix('+') != Some(command);
        let least = LEAST.split_whitespace().filter(lacks).collect::<Vec<_>>().join(" ");
        server.command(&format!("ACL SETUSER gate reset on >hunter2 {least}"));
        let limiter = at(&server.url().replace("//", "//gate:hunter2@"));
        // Without TIME the process's own time is used.
        if command == "time" {
            limiter.ready().await.unwrap();
            continue;
        }
        let error = refused(&limiter).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        // Redis 7.0 and older do not name it if it is the script's.
        let texts = [&*format!("'{command}'"), "can't run this command"];
        assert!(texts.iter().any(|text| error.to_string().contains(text)), "{error}");
        server.command(&format!("ACL SETUSER gate {LEAST}"));
        limiter.ready().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_cannot_write_is_not_ready() {
    let (master, server) = (RedisServer::start_with(&RedisServer::IMMEDIATE_REPLICATION), RedisServer::start());
    let limiter = at(&server.url());
    server.command("CONFIG SET maxmemory 1");
    let error = refused(&limiter).await;
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("OOM command not allowed"), "{error}");
    server.command("CONFIG SET maxmemory 0");
    limiter.ready().await.unwrap();
    server.command(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    until("the replica is in step", || server.command("INFO replication").contains("master_link_status:up"));
    let error = refused(&at(&server.url())).await;
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("READONLY You can't"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_far_away_is_waited_for() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::Latency(Duration::from_millis(220)));
    let builder = RedisStore::builder().deadline(Duration::from_secs(1));
    Limiter::new(builder.connect(&proxy.url()).unwrap()).ready().await.unwrap();
}

#[tokio::test]
async fn a_server_that_says_nothing_is_waited_for_and_told_after_five_seconds() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::BlackHole);
    let limiters = [at(&proxy.url()), Limiter::new(RedisStore::builder().connect_cluster([proxy.url()]).unwrap())];
    let checks = limiters.map(|limiter| async move {
        let start = Instant::now();
        let error = limiter.ready().await.unwrap_err();
        let waited = start.elapsed();
        assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(6), "{waited:?}: {error}");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("no connection within 5s"), "{error}");
    });
    for check in checks.map(tokio::spawn) {
        check.await.unwrap();
    }
}

#[tokio::test]
async fn law_6_a_permission_that_is_taken_away_leaves_no_key_without_a_ttl() {
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    for algorithm in algorithms {
        let server = RedisServer::start();
        let policy = Policy::per_hour("p", 10).unwrap().with_algorithm(algorithm);
        let limiter = Limiter::new(RedisStore::builder().deadline(AT_ONCE).connect(&server.url()).unwrap());
        limiter.check("old", &policy, 1).await.unwrap();
        server.command("ACL SETUSER default -pexpire");
        let error = limiter.check("new", &policy, 1).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Misconfigured, true), "{error}");
        assert!(server.command("DBSIZE").starts_with(":1"), "{algorithm:?}");
        server.command("ACL SETUSER default +pexpire");
        assert_eq!(limiter.peek("old", &policy).await.unwrap().available(), Some(9), "{algorithm:?}");
    }
}

#[tokio::test]
async fn an_open_breaker_does_not_answer_for_a_server_that_is_back() {
    let mut server = RedisServer::start();
    let limiter = at(&server.url());
    server.kill();
    while !limiter.is_breaker_open() {
        limiter.check("k", &policy(), 1).await.unwrap_err();
    }
    assert!(refused(&limiter).await.to_string().contains("Connection refused"));
    server.restart();
    let start = Instant::now();
    while let Err(error) = limiter.ready().await {
        // The next dial follows within 400 ms.
        assert!(start.elapsed() < AT_ONCE, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(limiter.is_breaker_open(), "it has not been told");
}

#[tokio::test]
async fn the_master_behind_sentinels_is_asked() {
    let trio = crate::support::sentinel::Trio::start(Duration::from_secs(60));
    let store =
        |name| RedisStore::builder().connect_sentinel(trio.sentinels.iter().map(RedisServer::url), name).unwrap();
    Limiter::new(store("mymaster")).ready().await.unwrap();
    let error = refused(&Limiter::new(store("another"))).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn every_master_of_a_cluster_is_asked() {
    let cluster = crate::support::cluster::Cluster::start();
    let limiter = Limiter::new(RedisStore::builder().connect_cluster([cluster.nodes[0].url()]).unwrap());
    limiter.ready().await.unwrap();
    for node in &cluster.nodes {
        assert!(super::calls(node, "evalsha") + super::calls(node, "eval") >= 1);
        node.command("ACL SETUSER default -setrange");
        let error = refused(&limiter).await;
        assert!(error.to_string().contains("'setrange'"), "{error}");
        node.command("ACL SETUSER default +setrange");
    }
    limiter.ready().await.unwrap();
}
