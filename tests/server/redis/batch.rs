//! Batching: concurrent checks share calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::{Decision, ErrorKind, FailurePolicy, Limiter, Policy, RedisStore, decision::Source};

use super::{calls, connected, limiter, policy, with_default_deadline};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;

#[tokio::test]
async fn a_single_check_is_one_call_and_concurrent_checks_share_calls() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    for _ in 0..20 {
        let _ = limiter.check("k", &policy(), 1).await.unwrap();
    }
    assert_eq!(calls(&server, "evalsha"), 20);
    let mut checks = JoinSet::new();
    for key in 0..1_000_u64 {
        let limiter = limiter.clone();
        checks.spawn(async move { limiter.check(key, &policy(), 1).await.unwrap().available() });
    }
    assert!(checks.join_all().await.into_iter().all(|available| available == Some(99_999)));
    let shared = calls(&server, "evalsha") - 20;
    assert!(shared < 100, "{shared} calls for 1 000 checks");
}

/// A check whose caller leaves while it is in flight. No other check is there, so the caller's task sends it.
async fn abandoned(limiter: &Limiter, key: &str) {
    let left = tokio::time::timeout(Duration::from_millis(20), limiter.check(key, &policy(), 100_000)).await;
    assert!(left.is_err(), "{left:?}");
}

#[tokio::test]
async fn a_lone_check_whose_caller_leaves_is_completed_and_delays_no_other() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let builder = RedisStore::builder().deadline(Duration::from_secs(10));
    let limiter = Limiter::new(builder.open(&proxy.url()).unwrap());
    let _ = limiter.check("warm", &policy(), 1).await.unwrap();

    proxy.set(Fault::Latency(Duration::from_millis(50)));
    abandoned(&limiter, "k").await;
    let start = Instant::now();
    assert!(!limiter.check("k", &policy(), 1).await.unwrap().is_allowed());
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());

    // The denial of a check whose caller has gone away is remembered.
    let _ = limiter.check("l", &policy(), 100_000).await.unwrap();
    abandoned(&limiter, "l").await;
    // The time of a round trip, and some more for a busy machine.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let denied = limiter.check("l", &policy(), 100_000).await.unwrap();
    assert_eq!(denied.source(), Source::DenyCache);
}

#[tokio::test]
async fn a_check_is_sent_before_the_replies_to_the_calls_in_flight() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let builder = RedisStore::builder().deadline(Duration::from_secs(10));
    let limiter = Limiter::new(builder.open(&proxy.url()).unwrap());
    let _ = limiter.check("k", &policy(), 1).await.unwrap();
    let before = calls(&server, "evalsha");

    proxy.set(Fault::Latency(Duration::from_secs(1)));
    let mut checks = JoinSet::new();
    for _ in 0..3 {
        let limiter = limiter.clone();
        checks.spawn(async move { limiter.check("k", &policy(), 1).await });
        // Long enough for each to be sent alone.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    loop {
        let is_answered = checks.try_join_next().is_some();
        if calls(&server, "evalsha") >= before + 3 {
            break;
        }
        assert!(!is_answered, "the last check has waited for a reply");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn without_batching_every_check_is_a_call() {
    let server = RedisServer::start();
    let store = RedisStore::builder().batching(false).deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store);
    let _ = limiter.check("warm", &policy(), 1).await.unwrap();
    let mut checks = JoinSet::new();
    for _ in 0..100 {
        let limiter = limiter.clone();
        checks.spawn(async move { limiter.check("k", &policy(), 1).await.unwrap() });
    }
    checks.join_all().await;
    assert_eq!(calls(&server, "evalsha"), 101);
    assert_eq!(limiter.peek("k", &policy()).await.unwrap().available(), Some(99_900));
}

#[tokio::test]
async fn a_bad_key_in_a_batch_fails_alone() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    server.command("SADD tollgate:{13}:p:l5:1h x");
    let mut checks = JoinSet::new();
    for key in 0..200_u64 {
        let limiter = limiter.clone();
        checks.spawn(async move { (key, limiter.check(key, &policy(), 1).await) });
    }
    for (key, result) in checks.join_all().await {
        if key == 13 {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::BadKey);
        } else {
            assert!(result.unwrap().is_allowed(), "{key}");
        }
    }
}

#[tokio::test]
async fn a_check_whose_caller_stopped_waiting_is_not_sent() {
    let server = RedisServer::start();
    let limiter = with_default_deadline(&server);
    connected(&limiter).await;
    server.signal("STOP");
    let mut checks = JoinSet::new();
    for number in 0..10_000_u64 {
        let limiter = limiter.clone();
        checks.spawn(async move { limiter.check(number % 8, &policy(), 1).await.unwrap_err().kind() });
    }
    // Unavailable: checks sent after the breaker opened.
    let no_answer = |kind| matches!(kind, ErrorKind::Deadline | ErrorKind::Unavailable);
    assert!(checks.join_all().await.into_iter().all(no_answer));
    server.signal("CONT");
    // Waits until the breaker closes.
    while limiter.peek("k", &policy()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut charged = 0;
    for key in 0..8_u64 {
        charged += 100_000 - limiter.peek(key, &policy()).await.unwrap().available().unwrap();
    }
    // At most 32 calls were in flight; the checks queued behind them timed out and were never sent. One more check may
    // have been sent: the first one, alone in a call that ended when its caller stopped waiting.
    assert!((1..=32 * 128 + 1).contains(&charged), "{charged}");
}

#[tokio::test]
async fn law_14_a_full_queue_refuses_further_checks_of_its_own_lane_only() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let _ = limiter.check("k", &policy(), 1).await.unwrap();
    server.pause(Duration::from_millis(300));
    let refused = Arc::new(AtomicU64::new(0));
    let mut checks = JoinSet::new();
    for _ in 0..6_000 {
        let (limiter, refused) = (limiter.clone(), Arc::clone(&refused));
        checks.spawn(async move {
            match limiter.check("flood", &policy(), 1).await {
                Ok(decision) => assert!(decision.is_allowed()),
                Err(error) => {
                    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Overloaded, false));
                    // No failure policy admits an overloaded check, which would lift the limit of the flood.
                    for policy in [FailurePolicy::Open, FailurePolicy::Local, FailurePolicy::Closed] {
                        assert!(!policy.resolve::<Decision>(Err(error.clone())).is_allowed());
                    }
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    for key in 0..10_u64 {
        let limiter = limiter.clone();
        checks.spawn(async move {
            // Lanes other than the flood's have room; a tenth of the keys may share the flood's lane.
            let _ = limiter.check(key, &policy(), 1).await;
        });
    }
    checks.join_all().await;
    let refused = refused.load(Ordering::Relaxed);
    // 4 096 checks are queued, and one or two calls are in flight.
    assert!((1_500..1_950).contains(&refused), "{refused}");
    let spent = 100_000 - limiter.peek("flood", &policy()).await.unwrap().available().unwrap();
    assert_eq!(spent, 6_000 - refused);
}

#[tokio::test]
async fn a_flood_on_one_key_does_not_delay_other_keys() {
    let server = RedisServer::start();
    // Redis executes the calls of a connection in their order.
    let builder = RedisStore::builder().pool_size(1).deadline(Duration::from_secs(30));
    let limiter = Limiter::new(builder.open(&server.url()).unwrap());
    let _ = limiter.check("k", &policy(), 1).await.unwrap();
    // Redis executes no script before all checks are queued. Scripts may write.
    server.command("CLIENT PAUSE 60000 WRITE");
    let executed = |key: String| {
        let limiter = limiter.clone();
        async move { limiter.check(key, &policy(), 1).await.unwrap().time().unwrap() }
    };
    let queued = |keys: Vec<String>| -> Vec<_> {
        let mut checks: Vec<_> = keys.into_iter().map(|key| tokio_test::task::spawn(Box::pin(executed(key)))).collect();
        checks.iter_mut().for_each(|check| assert!(check.poll().is_pending()));
        checks
    };
    // The other keys are queued last.
    let flood = queued(vec!["flood".to_owned(); 4_000]);
    let others = queued((0..100).map(|key| key.to_string()).collect());
    server.command("CLIENT UNPAUSE");
    let mut times = Vec::new();
    for check in flood.into_iter().chain(others) {
        times.push(check.into_inner().await);
    }
    let (flood, others) = times.split_at(4_000);
    // The other keys were executed before most of the flood. A key shares the flood's lane with a probability of 1/16,
    // so 26 of a hundred do so in one of 10^9 runs.
    let is_ahead = |executed: &&std::time::SystemTime| flood.iter().filter(|time| time < executed).count() < 1_000;
    let ahead = others.iter().filter(is_ahead).count();
    assert!(ahead >= 75, "{ahead} of 100");
}

#[tokio::test]
async fn a_log_takes_at_most_sixteen_bytes_a_request_whatever_its_cost() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let policy = Policy::per_hour("p", Policy::MAX_LIMIT).unwrap();
    for cost in [1, 1_000] {
        for _ in 0..1_000 {
            let _ = limiter.check(cost, &policy, cost).await.unwrap();
        }
        let reply = server.command(&format!("MEMORY USAGE tollgate:{{{cost}}}:p:l5:1h SAMPLES 0"));
        let bytes: u64 = reply.trim().trim_start_matches(':').parse().unwrap();
        assert!(bytes <= 16_000, "{bytes} bytes for 1 000 requests of cost {cost}");
    }
}

#[tokio::test]
async fn a_log_in_another_format_is_not_touched() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    server.command("ZADD tollgate:{k}:p:l1:3600000000 99999 1767225600000000");
    assert_eq!(limiter.check("k", &policy(), 1).await.unwrap().available(), Some(99_999));
    assert!(server.command("ZCARD tollgate:{k}:p:l1:3600000000").starts_with(":1"));
}

#[tokio::test]
async fn a_flood_while_the_server_is_silent_is_left_to_the_failure_policy() {
    let server = RedisServer::start();
    let limiter = with_default_deadline(&server);
    connected(&limiter).await;
    server.signal("STOP");
    let mut checks = JoinSet::new();
    for _ in 0..6_000 {
        let limiter = limiter.clone();
        checks.spawn(async move { limiter.check("flood", &policy(), 1).await.unwrap_err().kind() });
    }
    let no_answer = |kind| matches!(kind, ErrorKind::Deadline | ErrorKind::Unavailable);
    assert!(checks.join_all().await.into_iter().all(no_answer));
    server.signal("CONT");
}
