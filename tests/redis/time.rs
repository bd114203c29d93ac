//! Servers that do not let scripts ask for the time.

use tollgate::{Limiter, Policy, RedisStore, Source};

use crate::support::redis_server::RedisServer;

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
