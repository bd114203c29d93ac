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

#[tokio::test]
async fn a_user_who_may_not_ask_for_the_time_is_noticed_and_charged_once() {
    let server = RedisServer::start();
    server.command("ACL SETUSER app on >secret ~* +@all -time");
    counts_by_its_own_clock(&server.url().replace("redis://", "redis://app:secret@")).await;
}
