//! Holds: the entries `hold` and `settle`.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;

use crate::support::{Descriptor, Service, domain, entries, oks, redis_server::RedisServer};

const TOKENS: &str = "{ key: tenant, rate_limit: { unit: year, requests_per_unit: 100, hold_ttl: 1m } }";

fn hold(tenant: &str, id: &str) -> RateLimitDescriptor {
    entries([("tenant", tenant), ("hold", id)])
}

fn settle(tenant: &str, id: &str) -> RateLimitDescriptor {
    entries([("tenant", tenant), ("settle", id)])
}

fn tenant(tenant: &str) -> RateLimitDescriptor {
    entries([("tenant", tenant)])
}

#[tokio::test]
async fn a_hold_counts_until_it_is_settled() {
    let service = Service::start(&domain(&[TOKENS])).await;
    for (held, settlement, left) in [
        (60, settle("a", "1").back(45), 85),
        (60, settle("a", "1").hits(10), 75),
        // What was spent beyond the estimate is charged too.
        (5, settle("a", "1").hits(30), 45),
        // No amount: all of it was spent.
        (5, settle("a", "1"), 40),
        // More back than was held.
        (5, settle("a", "1").back(u64::MAX), 40),
        (40, settle("a", "1").hits(0), 40),
        (40, settle("a", "1").back(0), 0),
    ] {
        let before = service.left(tenant("a")).await;
        assert!(service.passes([hold("a", "1").hits(held)]).await);
        assert_eq!(u64::from(before - service.left(tenant("a")).await), held);
        assert!(service.passes([settlement.clone()]).await);
        assert_eq!(service.left(tenant("a")).await, left, "{held} {settlement:?}");
    }
}

#[tokio::test]
async fn holds_and_plain_hits_spend_from_one_budget() {
    let service = Service::start(&domain(&[TOKENS])).await;
    assert!(service.passes([hold("a", "1").hits(70)]).await);
    assert!(!service.passes([tenant("a").hits(31)]).await);
    assert!(service.passes([tenant("a").hits(30)]).await);
    assert!(!service.passes([hold("a", "2").hits(1)]).await);
    // Hits that are given back are not those that are held.
    assert!(service.passes([tenant("a").back(100)]).await);
    assert_eq!(service.left(tenant("a")).await, 30);
    assert!(service.passes([settle("a", "1").hits(0)]).await);
    assert_eq!(service.left(tenant("a")).await, 100);
}

#[tokio::test]
async fn a_settlement_ends_no_other_hold() {
    let yaml = domain(&[
        TOKENS,
        "{ key: user, rate_limit: { unit: year, requests_per_unit: 100, hold_ttl: 1m } }",
        "{ key: path, value: f*, share_threshold: true, rate_limit: { unit: year, requests_per_unit: 9, hold_ttl: 1m } }",
    ]);
    let service = Service::start(&yaml).await;
    // Before the hold.
    assert!(service.passes([settle("a", "1").back(50)]).await);
    assert!(service.passes([hold("a", "1").hits(60)]).await);
    for other in [
        settle("b", "1"),
        settle("a", "2"),
        settle("a", ""),
        settle("", "1"),
        settle("a|1", "1"),
        entries([("user", "a"), ("settle", "1")]),
        entries([("settle", "1")]),
        entries([("tenant", "a"), ("x", "y"), ("settle", "1")]),
        entries([("tenant", "a"), ("hold", "1"), ("settle", "1")]),
    ] {
        let _ = service.reply([other.back(60)]).await;
        assert_eq!(service.left(tenant("a")).await, 40);
    }
    assert!(service.passes([settle("a", "1").back(50)]).await);
    assert_eq!(service.left(tenant("a")).await, 90);
    // Again.
    for _ in 0..3 {
        assert!(service.passes([settle("a", "1").back(60)]).await);
        assert_eq!(service.left(tenant("a")).await, 90);
    }
    // Values that share a count do not share the names of their holds.
    assert!(service.passes([entries([("path", "f1"), ("hold", "1")]).hits(5)]).await);
    assert!(service.passes([entries([("path", "f2"), ("settle", "1")]).back(5)]).await);
    assert_eq!(service.left(entries([("path", "f3")])).await, 4);
}

#[tokio::test]
async fn two_calls_with_one_id_are_charged_no_less_than_they_have_spent() {
    let service = Service::start(&domain(&[TOKENS])).await;
    let megabyte = "x".repeat(1 << 20);
    let other = format!("{megabyte}y");
    for (number, id) in ["same", "", &megabyte].into_iter().enumerate() {
        let name = format!("tenant{number}");
        assert!(service.passes([hold(&name, id).hits(50)]).await);
        assert!(service.passes([hold(&name, id).hits(20)]).await);
        assert_eq!(service.left(tenant(&name)).await, 30);
        assert!(service.passes([settle(&name, &other).back(50)]).await);
        assert_eq!(service.left(tenant(&name)).await, 30);
        // Whichever ends first, 15 come back.
        assert!(service.passes([settle(&name, id).back(5)]).await);
        assert!(service.passes([settle(&name, id).back(10)]).await);
        assert_eq!(service.left(tenant(&name)).await, 45);
        assert!(service.passes([settle(&name, id).back(100)]).await);
        assert_eq!(service.left(tenant(&name)).await, 45);
    }
}

#[tokio::test]
async fn a_refused_call_holds_nothing() {
    let service =
        Service::start(&domain(&[TOKENS, "{ key: no, rate_limit: { unit: day, requests_per_unit: 0 } }"])).await;
    for hits in [101, u64::from(u32::MAX), u64::MAX] {
        assert!(!service.passes([hold("a", "1").hits(hits)]).await);
    }
    assert!(!service.passes([hold("a", "1").hits(5), entries([("no", "v")])]).await);
    assert!(!service.passes([hold("a", "1").hits(60), hold("a", "2").hits(60)]).await);
    assert!(service.passes([settle("a", "1").hits(50)]).await, "there is nothing to settle");
    assert_eq!(service.left(tenant("a")).await, 100);
    // A hold of nothing holds one unit, so that its settlement can charge what was spent.
    assert!(service.passes([hold("a", "1").hits(0)]).await);
    assert_eq!(service.left(tenant("a")).await, 99);
    assert!(service.passes([settle("a", "1").hits(u64::MAX)]).await);
    assert_eq!(service.left(tenant("a")).await, 0);
}

#[tokio::test]
async fn the_holds_of_a_call_end_when_all_of_its_descriptors_are_settled() {
    let model = "{ key: model, rate_limit: { unit: year, requests_per_unit: 50, hold_ttl: 1m } }";
    let service = Service::start(&domain(&[TOKENS, model])).await;
    let of_model = |role, id| entries([("model", "m"), (role, id)]);
    let call = [hold("a", "1").hits(40), of_model("hold", "1").hits(20), tenant("a").hits(3)];
    assert!(service.passes(call).await);
    assert!(service.passes([settle("a", "1").hits(10), of_model("settle", "1").back(15)]).await);
    assert_eq!(service.left(tenant("a")).await, 100 - 10 - 3);
    assert_eq!(service.left(entries([("model", "m")])).await, 45);
    // In two calls.
    assert!(service.passes([hold("a", "1").hits(40), of_model("hold", "1").hits(20)]).await);
    assert!(service.passes([of_model("settle", "1").hits(5)]).await);
    assert_eq!(service.left(entries([("model", "m")])).await, 25);
    assert!(service.passes([settle("a", "1").hits(7)]).await);
    assert_eq!(service.left(entries([("model", "m")])).await, 40);
    assert_eq!(service.left(tenant("a")).await, 80);
    // Two tenants in one call: each is charged at least what it has spent.
    assert!(service.passes([hold("x", "1").hits(40), hold("y", "1").hits(20)]).await);
    assert!(service.passes([settle("x", "1").hits(30), settle("y", "1").hits(5)]).await);
    assert!(service.left(tenant("x")).await == 70 && service.left(tenant("y")).await <= 95);
}

#[tokio::test]
async fn a_rule_without_holds_charges_the_estimate() {
    let service =
        Service::start(&domain(&["{ key: tenant, rate_limit: { unit: year, requests_per_unit: 100 } }"])).await;
    assert!(service.passes([hold("a", "1").hits(60)]).await);
    assert!(service.passes([settle("a", "1").back(50)]).await);
    assert!(!service.passes([hold("a", "1").hits(60)]).await);
    assert_eq!(service.left(tenant("a")).await, 40);
    assert!(service.passes([hold("a", "1").hits(0)]).await);
    assert_eq!(service.left(tenant("a")).await, 39);
}

#[tokio::test]
async fn entries_that_the_configuration_names_are_no_holds() {
    let rule = "{ key: tenant, descriptors: [{ key: hold, rate_limit: { unit: year, requests_per_unit: 1 } }] }";
    let service = Service::start(&domain(&[rule, TOKENS.replace("tenant", "t").as_str()])).await;
    assert_eq!(service.passed(3, hold("a", "1")).await, 1);
    assert_eq!(service.passed(3, hold("a", "2")).await, 1);
}

#[tokio::test]
async fn slots_are_free_when_they_are_settled_or_their_time_has_passed() {
    let rule = "{ key: tenant, rate_limit: { concurrent: 2, hold_ttl: 2s } }";
    let service = Service::start(&domain(&[rule])).await;
    assert!(service.passes([hold("a", "1")]).await);
    assert!(service.passes([hold("a", "2")]).await);
    let reply = service.reply([hold("a", "3")]).await;
    assert_eq!((oks(&reply), reply.statuses[0].limit_remaining), (vec![false], 0));
    assert!(service.passes([settle("a", "1").hits(500)]).await);
    assert!(service.passes([hold("a", "3")]).await);
    assert!(!service.passes([hold("a", "4")]).await);
    service.until("the slots are free", async |service| service.left(tenant("a")).await == 2).await;
    assert!(service.passes([settle("a", "2")]).await);
    assert_eq!(service.left(tenant("a")).await, 2);
}

#[tokio::test]
async fn a_hold_that_is_not_settled_is_charged() {
    let rule = "{ key: tenant, rate_limit: { unit: year, requests_per_unit: 100, hold_ttl: 300ms } }";
    let service = Service::start(&domain(&[rule])).await;
    assert!(service.passes([hold("a", "1").hits(60)]).await);
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert!(service.passes([settle("a", "1").hits(1)]).await);
    assert_eq!(service.left(tenant("a")).await, 40);
}

#[tokio::test]
async fn a_stop_gives_back_what_is_held() {
    let redis = RedisServer::start();
    let rules = domain(&["{ key: tenant, rate_limit: { concurrent: 2, hold_ttl: 5m } }"]);
    let start = async || Service::start_with(&rules, |options| options.redis = Some(redis.url())).await;
    let (one, other) = (start().await, start().await);
    assert!(one.passes([hold("a", "1")]).await && one.passes([hold("a", "2")]).await);
    assert!(!other.passes([hold("a", "3")]).await);
    one.stop().await;
    assert!(other.passes([hold("a", "3")]).await);
}

#[tokio::test]
async fn a_settlement_at_another_instance_changes_nothing_and_the_hold_ends_by_its_time() {
    let redis = RedisServer::start();
    let rules = domain(&[
        "{ key: tenant, rate_limit: { unit: year, requests_per_unit: 100, hold_ttl: 3s } }",
        "{ key: slots, rate_limit: { concurrent: 1, hold_ttl: 3s } }",
    ]);
    let start = async || Service::start_with(&rules, |options| options.redis = Some(redis.url())).await;
    let (one, other) = (start().await, start().await);
    let slot = |role| entries([("slots", "a"), (role, "1")]);
    assert!(one.passes([hold("a", "1").hits(60), slot("hold")]).await);
    assert!(other.passes([settle("a", "1").hits(10), slot("settle")]).await, "there is nothing to settle");
    assert_eq!((other.left(tenant("a")).await, other.left(entries([("slots", "a")])).await), (40, 0));
    assert!(!other.passes([hold("a", "2").hits(41)]).await, "both count what is held");
    let is_free = async |service: &Service| service.left(entries([("slots", "a")])).await == 1;
    other.until("the slot is free", is_free).await;
    // What was estimated stays charged, although less was spent.
    assert_eq!((one.left(tenant("a")).await, other.left(tenant("a")).await), (40, 40));
    assert!(one.passes([settle("a", "1").hits(10)]).await, "too late");
    assert_eq!(one.left(tenant("a")).await, 40);
}
