//! The warning about a server that may evict keys of limits.

use std::time::{Duration, Instant};

use tollgate::{Limiter, RedisStore, observe::Warning};

use crate::support::per_minute;
use crate::support::recorder::{Recorder, assert_warnings};
use crate::support::redis_server::{RedisServer, calls};

/// The warnings after a few checks, and the number of INFO calls.
async fn warnings(server: &RedisServer, url: &str) -> (Vec<Warning>, u64) {
    let recorder = Recorder::default();
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(5)).open(url).unwrap();
    let limiter = Limiter::new(store).with_observer(recorder.clone());
    for _ in 0..20 {
        assert!(limiter.check("k", &per_minute("p", 1_000), 1).await.unwrap().is_allowed());
    }
    // The reply to the background query of the eviction policy may still be in flight.
    let start = Instant::now();
    let mut seen = recorder.take().warnings;
    while seen.is_empty() && start.elapsed() < Duration::from_millis(300) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        seen = recorder.take().warnings;
    }
    let _ = limiter.check("k", &per_minute("p", 1_000), 1).await.unwrap();
    seen.extend(recorder.take().warnings);
    (seen, calls(server, "info"))
}

#[tokio::test]
async fn a_server_that_may_evict_is_warned_of_once_with_the_remedy() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = RedisServer::start_with(&["--maxmemory-policy", policy]);
        let (warnings, asked) = warnings(&server, &server.url()).await;
        assert_warnings(&warnings, &[("eviction", policy)]);
        let text = warnings[0].to_string();
        assert!(text.contains(policy) && text.contains("set maxmemory-policy to noeviction"), "{text}");
        assert_eq!(asked, 1);
    }
}

#[tokio::test]
async fn a_server_that_never_evicts_is_asked_once_and_causes_no_warning() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    assert_eq!(warnings(&server, &server.url()).await, (vec![], 1));
}

#[tokio::test]
async fn the_minimal_acl_permits_checks_and_causes_no_warning() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    // The ACL in the documentation of `RedisStore`; `redis/address.rs` tests that ACL.
    server.command(
        "ACL SETUSER gate on >secret resetkeys ~tollgate:* resetchannels -@all +evalsha +eval +script|load +time \
         +getrange +setrange +pexpire +unlink",
    );
    let url = server.url().replace("redis://", "redis://gate:secret@");
    assert!(warnings(&server, &url).await.0.is_empty());
    server.command("ACL SETUSER gate +info");
    assert_eq!(warnings(&server, &url).await.0.len(), 1);
}

#[tokio::test]
async fn a_quiet_limiter_without_an_observer_does_not_ask_the_server() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let limiter = Limiter::new(RedisStore::builder().plain_keys().open(&server.url()).unwrap()).without_notices();
    for _ in 0..20 {
        let _ = limiter.check("k", &per_minute("p", 1_000), 1).await;
    }
    assert_eq!(calls(&server, "info"), 0);
}
