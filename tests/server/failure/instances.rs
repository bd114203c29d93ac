//! Discovered instances, and a Redis that loses the set of instances.

use std::time::{Duration, Instant};

use tollgate::{Limiter, MemoryStore, Policy, RedisStore};

use crate::support::redis_server::RedisServer;

const INSTANCES: usize = 8;
const LIMIT: u64 = 80;

/// Sends a little traffic through one instance after another, so that they register one after another too.
async fn send_traffic(limiters: &[Limiter], policy: &Policy) {
    for limiter in limiters {
        let _ = limiter.peek("k", policy).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until every instance is registered; the first registrations are up to two seconds apart.
async fn wait_until_all_are_counted(server: &RedisServer, limiters: &[Limiter], policy: &Policy) {
    let start = Instant::now();
    while !server.command("ZCARD tollgate:instances").starts_with(&format!(":{INSTANCES}")) {
        assert!(start.elapsed() < Duration::from_secs(10), "not all instances are counted");
        send_traffic(limiters, policy).await;
    }
    // The last instances receive their replies too.
    send_traffic(limiters, policy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_does_not_raise_the_share_of_an_instance() {
    let mut server = RedisServer::start();
    let policy = Policy::per_hour("p", LIMIT).unwrap();
    let instance = || {
        // A long deadline for a busy machine; a dead server refuses connections at once.
        let store = RedisStore::builder().deadline(Duration::from_secs(2)).open(&server.url()).unwrap();
        Limiter::new(store).with_local_fallback(MemoryStore::new(), None)
    };
    let limiters: Vec<_> = (0..INSTANCES).map(|_| instance()).collect();
    // Several registrations each, so that every instance knows the full count.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        send_traffic(&limiters, &policy).await;
    }
    wait_until_all_are_counted(&server, &limiters, &policy).await;
    server.command("FLUSHALL");
    wait_until_all_are_counted(&server, &limiters, &policy).await;
    server.kill();
    let mut admitted = 0;
    for limiter in &limiters {
        for _ in 0..2 * LIMIT {
            let decision = limiter.check("k", &policy, 1).fail_local().await.unwrap();
            admitted += u64::from(decision.is_allowed());
        }
    }
    assert_eq!(admitted, LIMIT, "the shares of {INSTANCES} instances");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_from_the_future_take_no_share_of_an_instance() {
    let mut server = RedisServer::start();
    for number in 0..100 {
        server.command(&format!("ZADD tollgate:instances +inf foreign-{number}"));
    }
    let policy = Policy::per_hour("p", LIMIT).unwrap();
    let store = RedisStore::builder().deadline(Duration::from_secs(2)).open(&server.url()).unwrap();
    let limiters = [Limiter::new(store).with_local_fallback(MemoryStore::new(), None)];
    let start = Instant::now();
    while !server.command("ZCARD tollgate:instances").starts_with(":1\r") {
        assert!(start.elapsed() < Duration::from_secs(10), "the foreign members stay");
        send_traffic(&limiters, &policy).await;
    }
    send_traffic(&limiters, &policy).await;
    server.kill();
    let mut admitted = 0;
    for _ in 0..2 * LIMIT {
        let decision = limiters[0].check("k", &policy, 1).fail_local().await.unwrap();
        admitted += u64::from(decision.is_allowed());
    }
    assert_eq!(admitted, LIMIT, "the share of the only instance");
}
