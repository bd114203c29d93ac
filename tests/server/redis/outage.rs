//! Outages: servers that are down, silent, full, or hold foreign values.

use std::time::{Duration, Instant};

use tollgate::{ErrorKind, Limiter, Policy};

use super::{calls, connected, limiter, policy, with_default_deadline};
use crate::support::{connect, redis_server::RedisServer, timely};

const DEADLINE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn law_8_a_refused_connection_is_an_error_at_once_and_nothing_was_charged() {
    let mut server = RedisServer::start();
    let limiter = with_default_deadline(&server);
    server.kill();
    let start = Instant::now();
    for _ in 0..20 {
        let error = limiter.check("k", &policy(), 1).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false), "{error}");
    }
    // Far below twenty deadlines: a refused connection fails immediately.
    assert!(start.elapsed() < DEADLINE * 10, "{:?}", start.elapsed());
}

#[tokio::test]
async fn checks_recover_after_a_restart() {
    let mut server = RedisServer::start();
    let limiter = limiter(&server);
    for round in 0..3 {
        assert!(limiter.check("k", &policy(), 1).await.is_ok(), "round {round}");
        server.kill();
        for _ in 0..5 {
            assert!(limiter.check("k", &policy(), 1).await.is_err());
        }
        server.restart();
        // Recovery takes at most the pause between two dials.
        let start = Instant::now();
        while limiter.check("k", &policy(), 1).await.is_err() {
            assert!(start.elapsed() < Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(limiter.peek("k", &policy()).await.unwrap().available(), Some(100_000 - 1));
    }
}

#[tokio::test]
async fn law_9_a_check_that_was_not_answered_in_time_is_never_sent_again() {
    let server = RedisServer::start();
    let limiter = with_default_deadline(&server);
    connected(&limiter).await;
    let sent = calls(&server, "evalsha") + calls(&server, "eval");
    server.pause(Duration::from_millis(500));
    let start = Instant::now();
    for _ in 0..3 {
        let error = limiter.check("k", &policy(), 1).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, true));
    }
    assert!(start.elapsed() < DEADLINE * 9, "{:?}", start.elapsed());
    // Waits until the server resumes.
    let mut peeks = 1;
    while limiter.peek("k", &policy()).await.is_err() {
        peeks += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Some calls were lost with an abandoned connection. No call was sent twice.
    let ran = calls(&server, "evalsha") + calls(&server, "eval") - sent;
    assert!(ran <= 3 + peeks, "{ran} calls for {} checks", 3 + peeks);
    let spent = 100_000 - self::limiter(&server).peek("k", &policy()).await.unwrap().available().unwrap();
    assert!(spent <= 3, "{spent}");
}

#[tokio::test]
async fn law_8_no_check_waits_longer_than_the_deadline_for_a_silent_server() {
    timely(DEADLINE * 4, async || {
        let server = RedisServer::start();
        let limiter = with_default_deadline(&server);
        connected(&limiter).await;
        server.pause(Duration::from_millis(800));
        let start = Instant::now();
        let mut waits = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let limiter = limiter.clone();
            waits.spawn(async move { limiter.check("k", &policy(), 1).await.is_err() });
        }
        assert!(waits.join_all().await.into_iter().all(|failed| failed));
        start.elapsed()
    })
    .await;
}

#[tokio::test]
async fn a_foreign_value_fails_only_its_own_key() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let _ = limiter.check("mine", &policy(), 1).await.unwrap();
    server.command("SADD tollgate:{theirs}:p:l5:1h x");
    let error = limiter.check("theirs", &policy(), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadKey, "{error}");
    assert!(limiter.check("mine", &policy(), 1).await.is_ok());
}

#[tokio::test]
async fn wrong_credentials_and_missing_permissions_are_misconfigurations() {
    let server = RedisServer::start_with(&["--requirepass", "secret"]);
    let with = |login: &str| Limiter::new(connect(&server.url().replace("//", login)));
    for login in ["//", "//:wrong@"] {
        let error = with(login).check("k", &policy(), 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
        assert!(!error.to_string().contains("wrong@"));
    }
    assert!(with("//:secret@").check("k", &policy(), 1).await.is_ok());
}

#[tokio::test]
async fn a_server_out_of_memory_still_denies_and_peeks() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let policy = Policy::per_hour("p", 2).unwrap();
    let _ = limiter.check("k", &policy, 2).await.unwrap();
    server.command("CONFIG SET maxmemory 1");
    assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(0));
    let error = limiter.check("other", &policy, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.command("CONFIG SET maxmemory 0");
    assert!(limiter.check("other", &policy, 1).await.unwrap().is_allowed());
}
