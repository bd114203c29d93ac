//! Several descriptors in one call: one atomic check.

use envoy_types::pb::google::protobuf::value::Kind;

use crate::support::{Descriptor, Service, domain, entries, oks, passed};

const ROOM: &str = "{ key: room, rate_limit: { unit: year, requests_per_unit: 10 } }";
const FULL: &str = "{ key: full, rate_limit: { unit: year, requests_per_unit: 0 } }";

#[tokio::test]
async fn a_refused_call_charges_nothing() {
    let yaml = domain(&[
        ROOM,
        FULL,
        "{ key: one, rate_limit: { unit: year, requests_per_unit: 1 } }",
        "{ key: unlimited, rate_limit: { unlimited: true } }",
        "{ key: shadow, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 10 } }",
        "{ key: quota, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 10 } }",
    ]);
    let service = Service::start(&yaml).await;
    let of = |key| entries([(key, "v")]);
    assert!(service.passes([of("one")]).await);
    for refusing in ["one", "full"] {
        let call = [of("room"), of("unlimited"), of("shadow"), of("quota"), of("unmatched"), of(refusing)];
        let reply = service.reply(call).await;
        assert!(!passed(&reply));
        assert_eq!(oks(&reply), [true, true, true, true, true, false]);
        assert_eq!(reply.statuses[1].limit_remaining, u32::MAX, "unlimited");
        for key in ["room", "shadow", "quota"] {
            assert_eq!(service.left(of(key)).await, 10, "{key} beside {refusing}");
        }
    }
    assert!(service.passes([of("room"), of("shadow"), of("quota"), of("unmatched")]).await);
    for key in ["room", "shadow", "quota"] {
        assert_eq!(service.left(of(key)).await, 9, "{key}");
    }
}

#[tokio::test]
async fn one_rule_twice_in_a_call_is_charged_twice() {
    let service = Service::start(&domain(&[ROOM])).await;
    let of = || entries([("room", "v")]);
    let reply = service.reply([of().hits(3), of().hits(4)]).await;
    assert_eq!((oks(&reply), reply.statuses[1].limit_remaining), (vec![true, true], 3));
    let reply = service.reply([of().hits(2), of().hits(2)]).await;
    assert_eq!(oks(&reply), [false, false]);
    assert_eq!(service.left(of()).await, 3);
}

#[tokio::test]
async fn a_shadow_rule_refuses_nothing() {
    let rule = "{ key: s, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }";
    let service = Service::start(&domain(&[rule, FULL])).await;
    assert_eq!(service.passed(4, entries([("s", "v")])).await, 4);
    assert_eq!(service.left(entries([("s", "v")])).await, 0);
}

#[tokio::test]
async fn a_wrong_setup_of_a_shadow_rule_refuses_nothing() {
    let service = Service::start(&domain(&[
        "{ key: slots, shadow_mode: true, rate_limit: { concurrent: 1 } }",
        "{ key: s, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1, hold_ttl: 1m } }",
        ROOM,
    ]))
    .await;
    let both = entries([("s", "v"), ("hold", "1"), ("settle", "1")]);
    for descriptor in [entries([("slots", "v")]), both] {
        assert!(service.passes([descriptor, entries([("room", "v")])]).await);
    }
    assert_eq!(service.left(entries([("room", "v")])).await, 8);
}

#[tokio::test]
async fn a_rule_that_another_one_replaces_is_not_applied() {
    let yaml = domain(&[
        "{ key: a, rate_limit: { unit: year, requests_per_unit: 1, name: small } }",
        "{ key: b, rate_limit: { unit: year, requests_per_unit: 3, replaces: [{ name: small }] } }",
    ]);
    let service = Service::start(&yaml).await;
    let (a, b) = (entries([("a", "v")]), entries([("b", "v")]));
    for expected in [true, true, true, false] {
        assert_eq!(service.passes([a.clone(), b.clone()]).await, expected);
    }
    assert_eq!(service.left(a.clone()).await, 1);
    assert_eq!(service.passed(3, a).await, 1);
}

#[tokio::test]
async fn quotas_refuse_only_together_and_the_metadata_of_one_with_room_is_returned() {
    let quota = |name: &str, units: u32| {
        format!(
            "{{ key: service, value: {name}, quota_mode: true, metadata: {{ cluster: {name} }}, rate_limit: {{ unit: \
             year, requests_per_unit: {units} }} }}"
        )
    };
    let service = Service::start(&domain(&[&quota("one", 1), &quota("two", 3), ROOM])).await;
    let call = || [entries([("service", "one")]), entries([("service", "two")]), entries([("room", "v")])];
    let mut clusters = Vec::new();
    for _ in 0..3 {
        let reply = service.reply(call()).await;
        assert!(passed(&reply));
        let metadata = reply.dynamic_metadata.unwrap();
        let Some(Kind::StringValue(cluster)) = &metadata.fields["cluster"].kind else { panic!("{metadata:?}") };
        clusters.push(cluster.clone());
    }
    assert_eq!(clusters, ["one", "two", "two"]);
    let reply = service.reply(call()).await;
    assert!(!passed(&reply) && reply.dynamic_metadata.is_none());
    assert_eq!(oks(&reply), [false, false, true]);
    assert_eq!(service.left(entries([("room", "v")])).await, 7, "the refused call has charged nothing");
}

#[tokio::test]
async fn many_calls_at_once_pass_no_more_than_the_limit() {
    let yaml = domain(&[
        "{ key: a, rate_limit: { unit: year, requests_per_unit: 100 } }",
        "{ key: b, rate_limit: { unit: year, requests_per_unit: 60 } }",
    ]);
    let service = Service::start(&yaml).await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..400 {
        let mut client = service.client.clone();
        let mut descriptors = vec![entries([("a", "v")])];
        if number % 2 == 0 {
            descriptors.push(entries([("b", "v")]));
        }
        let request = crate::support::request("test", descriptors);
        calls
            .spawn(async move { (number % 2, passed(&client.should_rate_limit(request).await.unwrap().into_inner())) });
    }
    let results = calls.join_all().await;
    let count = |kind| results.iter().filter(|result| **result == (kind, true)).count() as u32;
    assert_eq!(count(0) + count(1), 100);
    assert_eq!(service.left(entries([("b", "v")])).await, 60 - count(0));
}
