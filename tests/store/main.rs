//! One suite for every store.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

use support::redis_server::RedisServer;

#[tokio::test]
async fn redis_answers() {
    let server = RedisServer::start();
    let limiter = tollgate::Limiter::new(tollgate::RedisStore::connect(&server.url()).unwrap());
    let policy = tollgate::Policy::per_second("p", 1).unwrap();
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    assert!(server.command("DBSIZE").starts_with(":1"));
}
