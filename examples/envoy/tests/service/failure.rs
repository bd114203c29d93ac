//! What callers see while Redis is away.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::support::{Service, entries, passed, print_line, redis_server::RedisServer, request};

const RULES: &str = "
domain: test
descriptors:
  - { key: open, rate_limit: { unit: year, requests_per_unit: 20, on_store_failure: open } }
  - { key: closed, rate_limit: { unit: year, requests_per_unit: 20, on_store_failure: closed } }
  - { key: default, rate_limit: { unit: year, requests_per_unit: 20 } }
  - { key: local, rate_limit: { unit: year, requests_per_unit: 20, on_store_failure: local } }
  - { key: taped, rate_limit: { unit: year, requests_per_unit: 20, on_store_failure: local, record: true } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 20 } }
";

async fn start(redis: &RedisServer, deadline: Duration) -> Service {
    Service::start_with(RULES, |options| {
        options.redis = Some(redis.url());
        options.instances = Some(Some(2));
        options.deadline = deadline;
    })
    .await
}

/// The result of one call: whether it passed, or its code.
async fn result(service: &Service, keys: &[&str]) -> Result<bool, Code> {
    let descriptors: Vec<_> = keys.iter().map(|key| entries([(key, "v")])).collect();
    let reply = service.try_call(request("test", descriptors)).await;
    reply.map(|reply| passed(&reply)).map_err(|status| status.code())
}

#[tokio::test]
async fn the_failure_policy_decides_while_redis_is_down() {
    let mut redis = RedisServer::start();
    let service = start(&redis, Duration::from_millis(500)).await;
    for key in ["open", "closed", "default", "local", "shadow"] {
        assert_eq!(result(&service, &[key]).await, Ok(true));
    }
    redis.kill();
    for (keys, expected) in [
        (&["open"][..], Ok(true)),
        (&["closed"], Err(Code::Unavailable)),
        (&["default"], Err(Code::Unavailable)),
        (&["shadow", "open"], Ok(true)),
        (&["open", "closed"], Err(Code::Unavailable)),
        (&["local", "closed"], Err(Code::Unavailable)),
        (&["unmatched"], Ok(true)),
    ] {
        assert_eq!(result(&service, keys).await, expected, "{keys:?}");
    }
    // A half of the limit is this instance's, and one unit of it is spent.
    let mut admitted = 0;
    for _ in 0..30 {
        admitted += u32::from(result(&service, &["local"]).await == Ok(true));
    }
    assert_eq!(admitted, 9);
    redis.restart();
    service.until("Redis judges again", async |service| result(service, &["closed"]).await == Ok(true)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_calls_are_answered_in_time_while_redis_is_frozen() {
    let redis = RedisServer::start();
    let deadline = Duration::from_millis(200);
    let service = start(&redis, deadline).await;
    assert_eq!(result(&service, &["closed"]).await, Ok(true));
    redis.signal("STOP");
    for (key, expected) in [("closed", Err(Code::Unavailable)), ("open", Ok(true))] {
        let start = Instant::now();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..3_000 {
            let mut client = service.client.clone();
            let request = request("test", [entries([(key, "v")])]);
            calls.spawn(async move {
                let reply = client.should_rate_limit(request).await;
                reply.map(|reply| passed(reply.get_ref())).map_err(|status| status.code())
            });
        }
        assert!(calls.join_all().await.iter().all(|result| *result == expected), "{key}");
        print_line(&format!("3000 calls, {key}, a deadline of {deadline:?}: {:?}", start.elapsed()));
        // Other tests may have the machine for seconds.
        if std::env::var_os("TOLLGATE_TIMES").is_some() {
            assert!(start.elapsed() < deadline + Duration::from_secs(2), "{:?}", start.elapsed());
        }
    }
    let mut admitted = 0;
    for _ in 0..30 {
        admitted += u32::from(result(&service, &["local"]).await == Ok(true));
    }
    assert!((1..=10).contains(&admitted), "the share of this instance: {admitted}");
    redis.signal("CONT");
    service.until("Redis judges again", async |service| result(service, &["default"]).await == Ok(true)).await;
}

#[tokio::test]
async fn two_instances_share_one_budget() {
    let redis = RedisServer::start();
    let (one, other) = (start(&redis, Duration::from_secs(10)).await, start(&redis, Duration::from_secs(10)).await);
    let descriptor = || entries([("closed", "shared")]);
    assert_eq!(one.passed(15, descriptor()).await + other.passed(15, descriptor()).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_stays_refused_while_its_hits_cannot_be_recorded() {
    let redis = RedisServer::start();
    let service = start(&redis, Duration::from_secs(5)).await;
    assert_eq!(result(&service, &["taped"]).await, Ok(true));
    redis.signal("STOP");
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let mut client = service.client.clone();
        calls.spawn(async move {
            let reply = client.should_rate_limit(request("test", [entries([("taped", "v")])])).await;
            reply.map(|reply| passed(reply.get_ref())).map_err(|status| status.code())
        });
    }
    let results = calls.join_all().await;
    redis.signal("CONT");
    // The share of this instance is a half of the limit.
    let refused = results.iter().filter(|result| **result == Ok(false)).count();
    assert!(refused >= 30 && results.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test]
async fn a_rule_that_fails_local_limits_without_redis() {
    let service = Service::start(RULES).await;
    assert_eq!(service.passed(22, entries([("local", "v")])).await, 20);
}
