//! Checks that their callers poll late, elsewhere or never again, and calls that wait for a connection.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::{Limiter, RedisStore, decision::Source};

use super::policy;
use crate::support::cluster::{Cluster, plain_key};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Polls once, while the server cannot answer. It would if the thread of the test lost its processor during the poll.
fn poll_once<F: Future + Unpin>(runtime: &Runtime, server: &RedisServer, future: &mut F) {
    let _entered = runtime.enter();
    server.signal("STOP");
    assert!(std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    server.signal("CONT");
}

/// Polls without a runtime.
fn poll_outside<F: Future + Unpin>(mut future: F) -> F::Output {
    for _ in 0..500 {
        if let Poll::Ready(output) = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no output");
}

fn on_cluster(runtime: &Runtime, cluster: &Cluster, deadline: Duration) -> Limiter {
    let urls: Vec<_> = cluster.nodes.iter().map(RedisServer::url).collect();
    let builder = RedisStore::builder().plain_keys().breaker(None).deny_cache(false).deadline(deadline);
    let _entered = runtime.enter();
    let limiter = Limiter::new(builder.open_cluster(urls.iter().map(String::as_str)).unwrap());
    for key in ["bar", "foo", "hello"] {
        let _ = runtime.block_on(limiter.check(key, &policy(), 1)).unwrap();
    }
    limiter
}

/// The limiter's own runtime runs; only the caller of the check has left it.
#[test]
fn a_check_that_leaves_the_runtime_gets_its_verdict_if_the_script_has_to_be_loaded() {
    let (server, runtime) = (RedisServer::start(), runtime());
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(5));
    let limiter = Limiter::new(builder.open(&server.url()).unwrap());
    let _ = runtime.block_on(limiter.check("warm", &policy(), 1)).unwrap();
    server.command("SCRIPT FLUSH");
    let mut check = limiter.check("k", &policy(), 1);
    poll_once(&runtime, &server, &mut check);
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    let verdict = poll_outside(check);
    assert!(verdict.is_ok(), "{verdict:?} after {:?}", start.elapsed());
}

#[test]
fn a_check_that_leaves_the_runtime_does_not_panic_when_its_slot_has_moved() {
    let (cluster, runtime) = (Cluster::start(), runtime());
    let limiter = on_cluster(&runtime, &cluster, Duration::from_secs(5));
    let (slot, owner) = cluster.slot_of(&plain_key("bar", &policy()));
    cluster.move_slot(slot, owner, (owner + 1) % 3);
    let mut check = limiter.check("bar", &policy(), 1);
    poll_once(&runtime, &cluster.nodes[owner], &mut check);
    std::thread::sleep(Duration::from_millis(100));
    assert!(poll_outside(check).is_ok());
}

#[test]
fn the_slot_map_is_refreshed_after_a_check_was_polled_on_a_runtime_that_is_idle_now() {
    let (mut cluster, runtime) = (Cluster::start_with_replicas(), runtime());
    let limiter = on_cluster(&runtime, &cluster, Duration::from_millis(300));
    std::thread::sleep(Duration::from_secs(1));
    let (slot, owner) = cluster.slot_of(&plain_key("bar", &policy()));
    let next = (owner + 1) % 3;
    cluster.move_slot(slot, owner, next);
    std::thread::sleep(Duration::from_millis(500));
    let mut check = limiter.check("bar", &policy(), 1);
    poll_once(&runtime, &cluster.nodes[owner], &mut check);
    let idle = Builder::new_current_thread().enable_all().build().unwrap();
    let _ = idle.block_on(check).unwrap();
    // A replica takes over, which only a refresh of the slot map finds.
    cluster.nodes[next].kill();
    let start = Instant::now();
    while runtime.block_on(limiter.check("bar", &policy(), 1)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(15), "no verdict for 15 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn late_calls_do_not_wait_for_a_call_that_waits_for_the_slot_map() {
    let (cluster, runtime) = (Cluster::start(), runtime());
    let limiter = on_cluster(&runtime, &cluster, Duration::from_secs(4));
    // So that the connections have not broken young.
    std::thread::sleep(Duration::from_millis(1_500));
    let (_, owner) = cluster.slot_of(&plain_key("bar", &policy()));
    let others: Vec<_> = (0..3).filter(|number| *number != owner).collect();
    let mut admin = cluster.nodes[owner].connection();
    let mut send = |command: &str| {
        let mut words = command.split(' ');
        let mut command = tollgate::redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        let _: tollgate::redis::Value = command.query(&mut admin).unwrap();
    };
    // The master refuses connections for 150 ms, and the others do not answer, so a refresh takes 1.2 s.
    others.iter().for_each(|&other| cluster.nodes[other].signal("STOP"));
    send("CONFIG SET maxclients 1");
    send("CLIENT KILL TYPE normal SKIPME yes");
    std::thread::sleep(Duration::from_millis(20));
    let check = || {
        let limiter = limiter.clone();
        runtime.spawn(async move {
            let start = Instant::now();
            let _ = limiter.check("bar", &policy(), 1).await.unwrap();
            start.elapsed()
        })
    };
    let first = [check(), check()];
    std::thread::sleep(Duration::from_millis(150));
    send("CONFIG SET maxclients 1000");
    // The pool has its connections.
    std::thread::sleep(Duration::from_millis(200));
    let took = runtime.block_on(check()).unwrap();
    let first = first.map(|check| runtime.block_on(check).unwrap());
    others.iter().for_each(|&other| cluster.nodes[other].signal("CONT"));
    // The refresh goes on for at least 800 ms.
    assert!(took < Duration::from_millis(400), "{took:?}, and {first:?}");
}

#[test]
fn a_check_that_is_polled_once_during_a_dial_delays_no_other() {
    let (server, runtime) = (RedisServer::start(), runtime());
    let proxy = Proxy::to(server.port());
    let builder = RedisStore::builder().plain_keys().pool_size(1).deadline(Duration::from_secs(3));
    let limiter = Limiter::new(builder.open(&proxy.url()).unwrap());
    let _ = runtime.block_on(limiter.check("warm", &policy(), 1)).unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    proxy.set(Fault::Reset);
    std::thread::sleep(Duration::from_millis(100));
    proxy.set(Fault::Latency(Duration::from_millis(30)));
    let mut held = limiter.check("held", &policy(), 1);
    poll_once(&runtime, &server, &mut held);
    let start = Instant::now();
    let verdict = runtime.block_on(limiter.check("k", &policy(), 1));
    assert!(verdict.is_ok() && start.elapsed() < Duration::from_secs(1), "{verdict:?} after {:?}", start.elapsed());
}

#[test]
fn denials_are_forgotten_when_a_dial_exceeds_the_deadline_also_if_the_caller_has_left() {
    let (server, empty, runtime) = (RedisServer::start(), RedisServer::start(), runtime());
    let proxy = Proxy::to(server.port());
    let builder = RedisStore::builder().deadline(Duration::from_millis(500));
    let limiter = Limiter::new(builder.open(&proxy.url()).unwrap());
    runtime.block_on(async { while limiter.check("warm", &policy(), 1).await.is_err() {} });
    let _ = runtime.block_on(limiter.check("k", &policy(), 100_000)).unwrap();
    let check = || runtime.block_on(limiter.check("k", &policy(), 1)).unwrap();
    assert_eq!((check().source(), check().source()), (Source::Store, Source::DenyCache));
    std::thread::sleep(Duration::from_millis(1_500));
    proxy.retarget(empty.port());
    proxy.set(Fault::Reset);
    std::thread::sleep(Duration::from_millis(50));
    // The dial takes 820 ms; the deadline is 500 ms.
    proxy.mute(true);
    let hung_up = async { tokio::time::timeout(Duration::from_millis(20), limiter.check("x", &policy(), 1)).await };
    assert!(runtime.block_on(hung_up).is_err());
    std::thread::sleep(Duration::from_millis(800));
    proxy.mute(false);
    std::thread::sleep(Duration::from_millis(100));
    let decision = check();
    assert!(decision.is_allowed(), "denied for {:?} by {:?}", decision.retry_after(), decision.source());
}
