//! A script cache that is emptied at any time.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{Limiter, RedisStore};

use crate::{calls, policy, support::redis_server::RedisServer};

/// Redis 6.2 counts all kinds of SCRIPT as one.
fn loads(server: &RedisServer) -> u64 {
    calls(server, "script|load") + calls(server, "script")
}

#[tokio::test]
async fn a_missing_script_is_sent_in_the_same_check_and_loaded_once() {
    let server = RedisServer::start();
    // A loaded machine must not turn into missing answers.
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).connect(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());
    assert_eq!((calls(&server, "evalsha"), calls(&server, "eval"), loads(&server)), (1, 1, 1));
    for _ in 0..100 {
        limiter.check("k", &policy(), 1).await.unwrap();
    }
    assert_eq!((calls(&server, "evalsha"), calls(&server, "eval"), loads(&server)), (101, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_checks_that_find_the_script_missing_load_it_once_and_charge_once_each() {
    let server = RedisServer::start();
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).connect(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    // Connected, and the script cache empty.
    limiter.check("warm", &policy(), 1).await.unwrap();
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
async fn a_server_that_refuses_script_load_still_judges() {
    let server = RedisServer::start();
    server.command("ACL SETUSER app on >secret ~tollgate:* +evalsha +eval +time +getrange +setrange");
    server.command("ACL SETUSER app +get +set +pexpire +unlink");
    let url = server.url().replace("redis://", "redis://app:secret@");
    let limiter = Limiter::new(RedisStore::connect(&url).unwrap());
    for _ in 0..3 {
        assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());
    }
}
