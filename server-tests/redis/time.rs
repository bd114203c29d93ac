//! Servers that do not let scripts ask for the time.

use std::{sync::mpsc, time::Duration};

use tollgate::{Limiter, MemoryStore, Policy, RedisStore, decision::Source};

use super::fake;
use crate::support::{redis_server::RedisServer, until};

async fn counts_by_its_own_clock(url: &str) {
    let limiter = Limiter::new(RedisStore::connect(url).unwrap());
    let policy = Policy::per_minute("p", 2).unwrap();
    for allowed in [true, true, false] {
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (allowed, Source::Store));
    }
}

#[tokio::test]
async fn a_server_without_the_time_in_scripts_is_noticed_and_charged_once() {
    let server = RedisServer::start_with(&["--rename-command", "TIME", ""]);
    counts_by_its_own_clock(&server.url()).await;
}

/// Also those whose calls were on their way when the first was refused.
#[tokio::test]
async fn many_checks_at_once_find_out_together_and_none_is_lost() {
    let server = RedisServer::start_with(&["--rename-command", "TIME", ""]);
    let store = RedisStore::builder().batching(false).deadline(std::time::Duration::from_secs(10));
    let limiter = Limiter::new(store.connect(&server.url()).unwrap());
    let policy = Policy::per_minute("p", 20).unwrap();
    let mut checks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        checks.spawn(async move { limiter.check("k", &policy, 1).await.unwrap().is_allowed() });
    }
    assert_eq!(checks.join_all().await.into_iter().filter(|&allowed| allowed).count(), 20);
}

#[tokio::test]
async fn a_user_who_may_not_ask_for_the_time_is_noticed_and_charged_once() {
    let server = RedisServer::start();
    server.command("ACL SETUSER app on >secret ~* +@all -time");
    counts_by_its_own_clock(&server.url().replace("redis://", "redis://app:secret@")).await;
}

/// What it says of the time is sent back to it, and is all that it is good for.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_time_is_nonsense_makes_nothing_panic() {
    let (counted, count) = mpsc::channel();
    let port = fake::start(move |command| {
        let reply = match command {
            "HELLO" => b"%1\r\n+proto\r\n:3\r\n".to_vec(),
            "EVALSHA" => {
                let times = [-1.0_f64, 1.0, 1.0].map(f64::to_le_bytes).concat();
                let packed = [&1e15_f64.to_le_bytes()[..], &[1], &9_u32.to_le_bytes(), &times].concat();
                [format!("${}\r\n", packed.len()).as_bytes(), &packed, b"\r\n"].concat()
            }
            "TIME" => b"*2\r\n$20\r\n18446744073709551615\r\n$1\r\n0\r\n".to_vec(),
            "ZADD" => {
                counted.send(()).unwrap();
                b":1\r\n".to_vec()
            }
            _ => b"+OK\r\n".to_vec(),
        };
        (Duration::ZERO, reply)
    });
    let store = RedisStore::connect(&format!("redis://127.0.0.1:{port}")).unwrap();
    let limiter = Limiter::new(store).with_local_discovered(MemoryStore::new());
    limiter.check("k", &Policy::per_minute("p", 10).unwrap(), 1).await.unwrap();
    until("the instance is counted", || count.try_recv().is_ok());
}
