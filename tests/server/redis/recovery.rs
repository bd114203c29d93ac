//! Recovery from broken connections, and runtimes that end.

use std::time::{Duration, Instant};

use tokio::{runtime, task::JoinSet};
use tollgate::{Limiter, RedisStore};

use super::policy;
use crate::support::proxy::{Fault, Proxy};
use crate::support::{connect, redis_server::RedisServer};

fn through(proxy: &Proxy) -> Limiter {
    Limiter::new(RedisStore::builder().deadline(Duration::from_secs(1)).open(&proxy.url()).unwrap())
}

/// Repeats checks until one succeeds, for at most four seconds.
async fn recovered(limiter: &Limiter) {
    let start = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(4), "did not recover");
        // An open breaker fails without yielding, so the loop must let other tasks run.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_half_open_connection_is_replaced() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let builder = RedisStore::builder().deadline(Duration::from_secs(1)).pool_size(2);
    let limiter = Limiter::new(builder.open(&proxy.url()).unwrap());
    recovered(&limiter).await;
    // A connection that is made after the others fell silent would answer.
    let start = Instant::now();
    while server.command("CLIENT LIST").matches(" addr=").count() < 3 {
        assert!(start.elapsed() < Duration::from_secs(10), "the second connection is not made");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.silence();
    assert!(limiter.check("k", &policy(), 1).await.is_err());
    recovered(&limiter).await;
    // The other connection may need as many calls without an answer.
    let (mut unanswered, mut in_a_row) = (0, 0);
    while in_a_row < 20 {
        match limiter.check("k", &policy(), 1).await {
            Ok(_) => in_a_row += 1,
            Err(error) => {
                (unanswered, in_a_row) = (unanswered + 1, 0);
                assert!(unanswered <= 3, "{error}");
                recovered(&limiter).await;
            }
        }
    }
}

/// The next check may come much later, and have less time than a dial takes.
#[tokio::test]
async fn connections_that_fell_silent_are_dialled_again_without_a_further_check() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let limiter = Limiter::new(RedisStore::builder().pool_size(2).open(&proxy.url()).unwrap());
    let start = Instant::now();
    let dialled = async |count: u32| {
        while proxy.accepted() < count {
            assert!(start.elapsed() < Duration::from_secs(20), "{} of {count} connections", proxy.accepted());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    recovered(&limiter).await;
    dialled(2).await;
    // The second connection is logged in.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = proxy.accepted();
    proxy.silence();
    for _ in 0..3 {
        assert!(limiter.check("k", &policy(), 1).await.is_err());
        // A busy machine may give up a call after its check. Calls in flight at the same time count once.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    dialled(before + 2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(proxy.accepted(), before + 2, "two connections were lost");
    assert!(limiter.check("k", &policy(), 1).await.is_ok());
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_replaced_by_the_new_primary_at_its_address() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::to(old.port());
    let limiter = through(&proxy);
    recovered(&limiter).await;
    proxy.retarget(new.port());
    old.command(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    recovered(&limiter).await;
    for _ in 0..20 {
        assert!(limiter.check("k", &policy(), 1).await.is_ok());
    }
}

/// A dial that takes longer than the pause between two dials.
#[tokio::test]
async fn a_distant_server_is_reached() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    // The round trip is 440 ms.
    proxy.set(Fault::Latency(Duration::from_millis(220)));
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).open(&proxy.url()).unwrap();
    recovered(&Limiter::new(store)).await;
}

#[test]
fn more_runtimes_than_cores_each_keep_their_connections() {
    let server = RedisServer::start();
    let limiter = Limiter::new(connect(&server.url()));
    let runtimes: Vec<_> =
        (0..20).map(|_| runtime::Builder::new_current_thread().enable_all().build().unwrap()).collect();
    for _ in 0..5 {
        for runtime in &runtimes {
            runtime.block_on(recovered(&limiter));
        }
    }
    let accepted = server.accepted_connections();
    // Two connections per runtime, and those of the test itself.
    assert!(accepted < 60, "{accepted} connections");
}

#[test]
fn a_store_works_on_consecutive_runtimes() {
    let server = RedisServer::start();
    let limiter = Limiter::new(connect(&server.url()));
    for _ in 0..20 {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for _ in 0..3 {
            assert!(runtime.block_on(limiter.check("k", &policy(), 1)).is_ok());
        }
    }
}

#[test]
fn a_runtime_that_ends_during_a_dial_does_not_affect_the_next_runtime() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let limiter = through(&proxy);
    proxy.mute(true);
    let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime().block_on(limiter.check("k", &policy(), 1)).is_err());
    proxy.mute(false);
    runtime().block_on(recovered(&limiter));
}

#[tokio::test]
async fn a_check_that_timed_out_waiting_for_a_connection_is_never_sent() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let limiter = through(&proxy);
    proxy.mute(true);
    let mut checks = JoinSet::new();
    for _ in 0..200 {
        let limiter = limiter.clone();
        checks.spawn(async move { limiter.check("k", &policy(), 1).await.is_err() });
    }
    assert!(checks.join_all().await.into_iter().all(|failed| failed));
    proxy.mute(false);
    let start = Instant::now();
    let left = loop {
        if let Ok(decision) = limiter.peek("k", &policy()).await {
            break decision.available();
        }
        assert!(start.elapsed() < Duration::from_secs(4));
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(left, Some(100_000));
}

#[test]
fn no_check_hangs_on_a_driver_that_has_just_ended() {
    let server = RedisServer::start();
    let limiter = Limiter::new(RedisStore::builder().deadline(Duration::from_secs(5)).open(&server.url()).unwrap());
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Threads start checks at any moment; a hanging check would time out after five seconds.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..3_000 {
                    assert!(runtime.block_on(limiter.check("k", &policy(), 1)).is_ok());
                }
            });
        }
    });
}

/// A stall of Redis is no reason for runtimes without checks to dial: they would add to the load when it comes back.
#[test]
fn a_short_stall_makes_idle_runtimes_dial_nothing() {
    let server = RedisServer::start();
    // Shorter than the stall, which lasts for several of its checks.
    let store = RedisStore::builder().deadline(Duration::from_millis(50)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    let start = || runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let runtimes: Vec<_> = (0..9).map(|_| start()).collect();
    for runtime in &runtimes {
        let limiter = limiter.clone();
        runtime.block_on(runtime.spawn(async move { recovered(&limiter).await })).unwrap();
    }
    std::thread::sleep(Duration::from_secs(2));
    let before = server.accepted_connections();
    server.signal("STOP");
    let end = Instant::now() + Duration::from_millis(250);
    runtimes[0].block_on(async {
        while Instant::now() < end {
            let _ = limiter.check("k", &policy(), 1).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    server.signal("CONT");
    std::thread::sleep(Duration::from_secs(2));
    // This question and the pool of the runtime that had checks.
    let dialled = server.accepted_connections() - before;
    assert!(dialled <= 6, "{dialled} connections");
}
