//! Error replies of real servers and their kinds: the table of `store/redis/net/error.rs`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use tollgate::{ErrorKind, Limiter, RedisStore, store::RedisStoreBuilder};

use super::{limiter, policy};
use crate::support::redis_server::RedisServer;

/// A pool of one connection, so that no dial is in flight when the connections are counted.
fn single() -> RedisStoreBuilder {
    RedisStore::builder().pool_size(1).deadline(Duration::from_secs(2))
}

async fn recovered(limiter: &Limiter) {
    let start = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(2), "did not recover");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_that_temporarily_refuses_writes_keeps_its_connections() {
    let server = RedisServer::start();
    let limiter = Limiter::new(single().open(&server.url()).unwrap());
    recovered(&limiter).await;
    let before = server.accepted_connections();
    server.command("CONFIG SET min-replicas-to-write 1");
    for _ in 0..10 {
        let error = limiter.check("k", &policy(), 1).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false), "{error}");
    }
    server.command("CONFIG SET min-replicas-to-write 0");
    // The breaker is open until a probe succeeds.
    recovered(&limiter).await;
    // The three connections are this test's own commands.
    assert_eq!(server.accepted_connections() - before, 3);
}

#[tokio::test]
async fn a_busy_server_keeps_its_connections() {
    let server = RedisServer::start_with(&["--lua-time-limit", "5"]);
    let limiter = Limiter::new(single().open(&server.url()).unwrap());
    recovered(&limiter).await;
    let before = server.accepted_connections();
    let mut forever = server.connection();
    let forever =
        std::thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut forever));
    let start = Instant::now();
    let error = loop {
        if let Err(error) = limiter.check("k", &policy(), 1).await {
            break error;
        }
        assert!(start.elapsed() < Duration::from_secs(5));
    };
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false), "{error}");
    server.command("SCRIPT KILL");
    assert!(forever.join().unwrap().is_err());
    assert!(limiter.check("k", &policy(), 1).await.is_ok());
    assert_eq!(server.accepted_connections() - before, 3);
}

#[tokio::test]
async fn connections_to_a_replica_without_its_master_are_replaced() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    recovered(&limiter).await;
    let before = server.accepted_connections();
    server.command("CONFIG SET replica-serve-stale-data no");
    server.command("REPLICAOF 127.0.0.1 1");
    for _ in 0..5 {
        let error = limiter.check("k", &policy(), 1).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable && !error.may_have_charged(), "{error}");
    }
    server.command("REPLICAOF NO ONE");
    recovered(&limiter).await;
    // Four connections are this test's own commands.
    assert!(server.accepted_connections() - before > 4, "no new connection");
}

#[tokio::test]
async fn a_replica_that_refuses_every_charge_is_not_dialled_for_every_check() {
    let server = RedisServer::start();
    let store = single().breaker(None).deny_cache(false).open(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    recovered(&limiter).await;
    server.command("REPLICAOF 127.0.0.1 1");
    let before = server.accepted_connections();
    let (start, mut checks) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(500) {
        assert!(limiter.check("k", &policy(), 1).await.is_err());
        checks += 1;
    }
    let dials = server.accepted_connections() - before;
    assert!(dials < 24 && checks > 100, "{dials} dials for {checks} checks in half a second");
}

#[tokio::test]
async fn a_node_of_a_cluster_without_slots_is_unavailable() {
    let server = RedisServer::start_node(&[]);
    let error = limiter(&server).check("k", &policy(), 1).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_an_error_and_is_not_dialled_for_every_check() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (sender, dials) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = (sender.send(()), stream.read(&mut [0; 1024]));
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let limiter = Limiter::new(RedisStore::open(&url).unwrap());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        assert!(limiter.check("k", &policy(), 1).await.is_err());
    }
    let dials = dials.try_iter().count();
    assert!(dials < 12, "{dials} dials in half a second");
}
