//! How holds end when other descriptors of a call are refused, missing, in shadow or too many.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;

use crate::support::{Descriptor, Service, domain, entries, oks, redis_server::RedisServer, request};

const TOKENS: &str = "{ key: tenant, rate_limit: { unit: year, requests_per_unit: 100, hold_ttl: 5m } }";
const SLOTS: &str = "{ key: slots, rate_limit: { concurrent: 1, hold_ttl: 5m } }";

fn hold(key: &str, value: &str, id: &str) -> RateLimitDescriptor {
    entries([(key, value), ("hold", id)])
}

fn settle(key: &str, value: &str, id: &str) -> RateLimitDescriptor {
    entries([(key, value), ("settle", id)])
}

#[tokio::test]
async fn holds_under_shadow_rules_and_quotas_are_charged_what_was_spent() {
    let quota = |value| {
        format!(
            "{{ key: service, value: {value}, quota_mode: true, rate_limit: {{ unit: year, requests_per_unit: 100, \
             hold_ttl: 5m }} }}"
        )
    };
    let service = Service::start(&domain(&[
        &quota("one"),
        &quota("two"),
        "{ key: trial, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 100, hold_ttl: 5m } }",
    ]))
    .await;
    let all = [("service", "one"), ("service", "two"), ("trial", "a")];
    assert!(service.passes(all.map(|(key, value)| hold(key, value, "1").hits(40))).await);
    assert!(service.passes(all.map(|(key, value)| settle(key, value, "1").hits(30))).await);
    for (key, value) in all {
        assert_eq!(service.left(entries([(key, value)])).await, 70, "{key} {value}");
    }
}

#[tokio::test]
async fn a_settlement_that_does_not_come_keeps_no_slot() {
    let service = Service::start(&domain(&[TOKENS, SLOTS])).await;
    assert!(service.passes([hold("tenant", "a", "1").hits(40), hold("slots", "a", "1")]).await);
    assert!(!service.passes([hold("slots", "a", "2")]).await);
    // Envoy sends no descriptor for a response that does not say what was spent.
    assert!(service.passes([settle("slots", "a", "1")]).await);
    let slots = || entries([("slots", "a")]);
    service.until("the slot is free", async |service| service.left(slots()).await == 1).await;
    assert_eq!(service.left(entries([("tenant", "a")])).await, 60, "the estimate is charged");
}

#[tokio::test]
async fn a_settlement_is_charged_although_another_one_of_its_call_does_not_come() {
    for end in ["time", "stop"] {
        let redis = RedisServer::start();
        let start = async || Service::start_with(&domain(&[TOKENS, SLOTS]), |o| o.redis = Some(redis.url())).await;
        let (one, other) = (start().await, start().await);
        assert!(one.passes([hold("tenant", end, "1").hits(1), hold("slots", end, "1")]).await);
        assert!(one.passes([settle("tenant", end, "1").hits(50)]).await);
        if end == "stop" {
            one.stop().await;
        }
        let left = async |service: &Service| service.left(entries([("tenant", end)])).await == 50;
        other.until("50 units are charged", left).await;
    }
}

#[tokio::test]
async fn a_settlement_counts_in_a_call_that_is_refused() {
    let full = "{ key: full, rate_limit: { unit: year, requests_per_unit: 0 } }";
    let service = Service::start(&domain(&[TOKENS, SLOTS, full])).await;
    for (id, other) in [("1", entries([("full", "v")])), ("2", entries([("slots", "a")]))] {
        let before = service.left(entries([("tenant", "a")])).await;
        assert!(service.passes([hold("tenant", "a", id).hits(40)]).await);
        let reply = service.reply([other, settle("tenant", "a", id).hits(10)]).await;
        assert_eq!(oks(&reply), [false, true]);
        assert_eq!(before - service.left(entries([("tenant", "a")])).await, 10, "{id}");
    }
}

#[tokio::test]
async fn all_settlements_of_a_call_are_sent_although_redis_stands_still() {
    let redis = RedisServer::start();
    let service = Service::start_with(&domain(&[TOKENS]), |options| {
        options.redis = Some(redis.url());
        options.deadline = Duration::from_millis(500);
    })
    .await;
    let tenants = ["a", "b", "c", "d"];
    for tenant in tenants {
        service
            .until("the units are held", async |service| {
                service.try_call(request("test", [hold("tenant", tenant, "1").hits(40)])).await.is_ok()
            })
            .await;
    }
    redis.signal("STOP");
    let _ = service.try_call(request("test", tenants.map(|tenant| settle("tenant", tenant, "1").hits(1)))).await;
    redis.signal("CONT");
    for tenant in tenants {
        service
            .until("one unit is charged", async |service| {
                let reply = service.try_call(request("test", [entries([("tenant", tenant)]).hits(0)])).await;
                reply.is_ok_and(|reply| reply.statuses[0].limit_remaining == 99)
            })
            .await;
    }
}

#[tokio::test]
async fn one_tenant_does_not_take_the_room_for_the_holds_of_others() {
    let rules = TOKENS.replace("100,", "1000000,");
    let service = Service::start(&domain(&[&rules])).await;
    let mut holds = 0;
    for call in 0.. {
        let ids: Vec<_> = (0..64).map(|number| hold("tenant", "a", &format!("{call} {number}"))).collect();
        if !service.passes(ids).await {
            break;
        }
        holds += 64;
        assert!(holds < 20_000, "one tenant has too many holds");
    }
    assert!(service.passes([hold("tenant", "b", "1").hits(60)]).await);
    assert!(service.passes([settle("tenant", "b", "1").hits(10)]).await);
    assert_eq!(service.left(entries([("tenant", "b")])).await, 999_990);
    // A refused hold charges nothing.
    assert_eq!(service.left(entries([("tenant", "a")])).await, 1_000_000 - holds);
    for number in 0..64 {
        assert!(service.passes([settle("tenant", "a", &format!("0 {number}"))]).await);
    }
    assert!(service.passes([hold("tenant", "a", "again")]).await);
}

#[tokio::test]
async fn a_hold_is_settled_after_its_rule_is_gone() {
    let service = Service::start(&domain(&[TOKENS])).await;
    assert!(service.passes([hold("tenant", "a", "1").hits(40)]).await);
    service.folder.write("limits.yaml", domain(&[&TOKENS.replace(", hold_ttl: 5m", "")]));
    let limited = async |service: &Service| {
        // A rule without holds charges the estimate.
        service.passes([hold("tenant", "c", "1").hits(1)]).await;
        service.passes([settle("tenant", "c", "1").back(1)]).await;
        service.left(entries([("tenant", "c")])).await < 100
    };
    service.until("the rule has no holds", limited).await;
    assert!(service.passes([settle("tenant", "a", "1").hits(10)]).await);
    assert_eq!(service.left(entries([("tenant", "a")])).await, 90);
}
