//! Loading of the script, also after a SCRIPT FLUSH.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{Limiter, RedisStore};

use super::{calls, policy};
use crate::support::{connect, redis_server::RedisServer};

/// The number of SCRIPT LOAD calls. Redis 6.2 counts all subcommands of SCRIPT together.
fn loads(server: &RedisServer) -> u64 {
    calls(server, "script|load") + calls(server, "script")
}

#[tokio::test]
async fn the_script_is_loaded_before_the_first_check_and_again_when_missing() {
    let server = RedisServer::start();
    // A long deadline, so that a loaded machine causes no timeouts.
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    let counts = || (calls(&server, "evalsha"), calls(&server, "eval"), loads(&server));
    // The first check of a process needs no additional round trip.
    assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());
    assert_eq!(counts(), (1, 0, 1));
    for flushes in [1, 2] {
        server.command("SCRIPT FLUSH");
        let before = loads(&server);
        for _ in 0..100 {
            assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());
        }
        assert_eq!(counts(), (1 + flushes * 100, flushes, before + 1));
    }
    assert_eq!(limiter.peek("k", &policy()).await.unwrap().available(), Some(100_000 - 201));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_checks_without_the_script_load_it_once_and_charge_once_each() {
    let server = RedisServer::start();
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    // The store is connected, and the script cache is empty.
    let _ = limiter.check("warm", &policy(), 1).await.unwrap();
    server.command("SCRIPT FLUSH");
    let before = loads(&server);
    let mut checks = JoinSet::new();
    for _ in 0..200 {
        let limiter = limiter.clone();
        checks.spawn(async move { limiter.check("k", &policy(), 1).await.unwrap().is_allowed() });
    }
    assert!(checks.join_all().await.into_iter().all(|allowed| allowed));
    assert_eq!(loads(&server) - before, 1);
    assert_eq!(limiter.peek("k", &policy()).await.unwrap().available(), Some(100_000 - 200));
}

#[tokio::test]
async fn a_server_without_permission_for_script_load_still_decides() {
    let server = RedisServer::start();
    server.command("ACL SETUSER app on >secret ~tollgate:* +evalsha +eval +time +getrange +setrange");
    server.command("ACL SETUSER app +pexpire +unlink");
    let url = server.url().replace("redis://", "redis://app:secret@");
    let limiter = Limiter::new(connect(&url));
    for _ in 0..3 {
        assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());
    }
}
