//! Rules in quota mode over Redis: how many calls of the store they take, and what is remembered of them.

use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::support::program::{Program, configuration};
use crate::support::{Descriptor, Service, domain, entries, field, oks, passed, request};
use crate::support::{link::Link, redis_server::RedisServer};

fn quota(name: &str, limit: &str) -> String {
    format!("{{ key: service, value: {name}, quota_mode: true, rate_limit: {{ {limit} }} }}")
}

#[tokio::test]
async fn many_quotas_that_are_over_refuse_within_the_deadline_of_a_call() {
    const QUOTAS: usize = 12;
    let names: Vec<_> = (0..QUOTAS).map(|number| format!("q{number}")).collect();
    let limit = |number| {
        let window = if number == 7 { "window: 1h" } else { "unit: year" };
        format!("{window}, requests_per_unit: 10, on_store_failure: open")
    };
    let rules: Vec<_> = names.iter().enumerate().map(|(number, name)| quota(name, &limit(number))).collect();
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    let redis = RedisServer::start();
    // A call of the store for each quota would take longer than the deadline.
    let link = Link::to(redis.port(), Duration::from_millis(600));
    let (_folder, path) = configuration(&domain(&rules));
    let program = Program::start(&["--config", &path, "--redis", &link.url(), "--deadline", "5000ms"]);
    let mut client = RateLimitServiceClient::connect(format!("http://{}", program.address)).await.unwrap();
    let mut reply = async |hits| {
        let call = names.iter().map(|name| entries([("service", name)]).hits(hits)).collect::<Vec<_>>();
        client.should_rate_limit(request("test", call)).await.unwrap().into_inner()
    };
    assert!(passed(&reply(9).await));
    // One unit is left of each, so no denial is remembered.
    for _ in 0..2 {
        let reply = reply(5).await;
        assert_eq!(oks(&reply), [false; QUOTAS]);
        let wait: u32 = field(&reply, "retry-after").expect("a verdict").parse().unwrap();
        assert!((3_000..=3_600).contains(&wait), "the wait for the one that has room first: {wait}");
    }
    assert!(passed(&reply(1).await));
}

#[tokio::test]
async fn a_quota_that_has_room_again_passes_a_call_although_the_denial_of_another_one_is_remembered() {
    let redis = RedisServer::start();
    let rules =
        [quota("long", "unit: year, requests_per_unit: 1"), quota("short", "window: 500ms, requests_per_unit: 1")];
    let rules = rules.each_ref().map(String::as_str);
    let service = Service::start_with(&domain(&rules), |options| options.redis = Some(redis.url())).await;
    let call = || [entries([("service", "long")]), entries([("service", "short")])];
    assert!(service.passes(call()).await);
    for _ in 0..3 {
        let reply = service.reply(call()).await;
        if oks(&reply) == [false, false] {
            let wait: u64 = field(&reply, "retry-after-ms").unwrap().parse().unwrap();
            // The other one is still over, and the service knows it without a call of Redis.
            tokio::time::sleep(Duration::from_millis(wait)).await;
            assert!(service.passes(call()).await);
        }
    }
}
