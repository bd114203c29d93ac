//! The time of the server: scripts that cannot call TIME, and absurd times.

use std::{sync::mpsc, time::Duration};

use tollgate::{Limiter, MemoryStore, Policy, RedisStore, decision::Source};

use super::fake_server;
use crate::support::{connect, redis_server::RedisServer, until};

async fn assert_counted_without_server_time(url: &str) {
    let limiter = Limiter::new(connect(url));
    let policy = Policy::per_minute("p", 2).unwrap();
    for allowed in [true, true, false] {
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (allowed, Source::Store));
    }
}

#[tokio::test]
async fn a_server_without_time_in_scripts_is_detected_and_charged_once() {
    let server = RedisServer::start_with(&["--rename-command", "TIME", ""]);
    assert_counted_without_server_time(&server.url()).await;
}

/// Includes the checks whose calls were in flight when the first call failed.
#[tokio::test]
async fn concurrent_checks_all_succeed_without_the_time_in_scripts() {
    let server = RedisServer::start_with(&["--rename-command", "TIME", ""]);
    let store = RedisStore::builder().batching(false).deadline(std::time::Duration::from_secs(10));
    let limiter = Limiter::new(store.open(&server.url()).unwrap());
    let policy = Policy::per_minute("p", 20).unwrap();
    let mut checks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        checks.spawn(async move { limiter.check("k", &policy, 1).await.unwrap().is_allowed() });
    }
    assert_eq!(checks.join_all().await.into_iter().filter(|&allowed| allowed).count(), 20);
}

#[tokio::test]
async fn a_user_without_permission_for_time_is_detected_and_charged_once() {
    let server = RedisServer::start();
    server.command("ACL SETUSER app on >secret ~* +@all -time");
    assert_counted_without_server_time(&server.url().replace("redis://", "redis://app:secret@")).await;
}

/// An absurd server time is used in further calls and nowhere else, and an absurd number of instances not at all.
#[tokio::test(flavor = "multi_thread")]
async fn an_absurd_server_time_causes_no_panic() {
    let (counted, count) = mpsc::channel();
    let port = fake_server::start(move |command| {
        let reply = match command {
            "HELLO" => b"%1\r\n+proto\r\n:3\r\n".to_vec(),
            "EVALSHA" => {
                // The time, a charge that fits and leaves nine units, and the time until the next one.
                let packed = [1e15, 9.0 * 4.0 + 1.0, 1.0].map(f64::to_le_bytes).concat();
                [format!("${}\r\n", packed.len()).as_bytes(), &packed, b"\r\n"].concat()
            }
            "EVAL" => {
                counted.send(()).unwrap();
                b":9223372036854775807\r\n".to_vec()
            }
            _ => b"+OK\r\n".to_vec(),
        };
        (Duration::ZERO, reply)
    });
    let store = connect(&format!("redis://127.0.0.1:{port}"));
    let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), None);
    let _ = limiter.check("k", &Policy::per_minute("p", 10).unwrap(), 1).await.unwrap();
    until("the instance is counted", || count.try_recv().is_ok());
}
