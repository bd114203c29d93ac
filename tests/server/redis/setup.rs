//! Configuration of addresses, pools and connections.

use std::time::Duration;

use bb8_redis::{RedisConnectionManager, bb8};
use tokio::task::JoinSet;
use tokio_test::{assert_ready, task};
use tollgate::{Check, ErrorKind, Limiter, RedisStore, bb8_redis};

use super::{limiter, policy};
use crate::support::{patient, redis_server::RedisServer, says};

#[test]
fn a_wrong_address_or_setting_is_an_error_that_shows_no_password() {
    for url in ["", "localhost", "http://localhost", "redis://", "redis://:hunter2@host:port"] {
        let error = RedisStore::open(url).unwrap_err();
        says(&error, "the Redis URL (not shown, it may hold a password) cannot be used: ");
        assert!(!error.to_string().contains("hunter2"));
    }
    let url = "redis://:hunter2@127.0.0.1:1";
    let builder = RedisStore::builder;
    says(builder().pool_size(0).open(url).unwrap_err(), "a pool of 0 connections can send nothing; ");
    says(builder().deadline(Duration::ZERO).open(url).unwrap_err(), "a deadline of 0 would refuse every check; ");
    says(builder().prefix("{t}").open(url).unwrap_err(), r#"key prefix "{t}" has braces, which mark the hash tag; "#);
    assert!(!format!("{:?}", builder().open(url).unwrap()).contains("hunter2"));
}

/// Covers a check of one key, a check across slots, and a reset.
#[test]
fn without_a_runtime_checks_and_resets_are_errors() {
    let url = "redis://127.0.0.1:1";
    let stores = [
        RedisStore::open(url).unwrap(),
        RedisStore::builder().batching(false).open(url).unwrap(),
        RedisStore::builder().open_cluster([url]).unwrap(),
    ];
    for limiter in stores.map(Limiter::new) {
        let check = Check::new("foo", &policy(), 1).and("bar", &policy(), 1);
        for check in [Check::new("foo", &policy(), 1), check] {
            let mut check = task::spawn(limiter.check_all(check));
            let error = assert_ready!(check.poll()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
        }
        let policy = policy();
        let mut reset = task::spawn(limiter.reset("foo", &policy));
        assert_eq!(assert_ready!(reset.poll()).unwrap_err().kind(), ErrorKind::StoreMisconfigured);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_checks_use_the_same_few_connections() {
    let server = RedisServer::start();
    let store = RedisStore::builder().pool_size(3).deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    let mut tasks = JoinSet::new();
    for task in 0..50_u64 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            for _ in 0..200 {
                let _ = limiter.check(task, &policy(), 1).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let accepted = server.accepted_connections();
    // Three connections are the store's; up to three are this test's own commands.
    let own = 3;
    assert!(accepted <= 3 + own, "{accepted}");
}

#[tokio::test]
async fn a_users_own_pool_works_and_shares_the_budget() {
    let server = RedisServer::start();
    let manager = RedisConnectionManager::new(server.url()).unwrap();
    let pool = bb8::Pool::builder().max_size(2).build(manager).await.unwrap();
    // The pool opens its second connection beside other tests, which is not what this test is about.
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10));
    let theirs = Limiter::new(builder.from_pool(pool).unwrap());
    assert_eq!(theirs.check("k", &policy(), 1).await.unwrap().available(), Some(99_999));
    assert_eq!(limiter(&server).check("k", &policy(), 1).await.unwrap().available(), Some(99_998));
}

#[tokio::test]
async fn prefixes_keep_services_apart() {
    let server = RedisServer::start();
    for (prefix, available) in [("a:", 99_999), ("b:", 99_999), ("a:", 99_998)] {
        let limiter = Limiter::new(patient().prefix(prefix).open(&server.url()).unwrap());
        assert_eq!(limiter.check("k", &policy(), 1).await.unwrap().available(), Some(available));
    }
}
