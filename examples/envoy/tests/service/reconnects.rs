//! Envoys whose streams end again and again.

use crate::support::quotas::{Quotas, Told, arrival};
use crate::support::redis_server::RedisServer;
use crate::support::{Service, domain, entries, print_line};

const HOUR: &str = "{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 1000, lease: 500 } }";

/// The units of the first block of a new stream under a flood of requests, all of which may be spent after its end.
async fn units_of_a_short_stream(service: &Service) -> u32 {
    let mut envoy = Quotas::open(service.address).await;
    let told = envoy.tenant("a", 0, 1_000).await;
    envoy.close().await;
    match told {
        Told::Block(units) => units,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_envoy_that_connects_again_and_again_leaves_units_to_others() {
    let service = Service::start(&domain(&[HOUR])).await;
    let mut units = Vec::new();
    for _ in 0..10 {
        units.push(units_of_a_short_stream(&service).await);
    }
    assert_eq!(units, [500, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(service.left(entries([("tenant", "a")])).await, 491, "blocks count until no Envoy spends them");
    // A stream that lasts gets more.
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("a", 0, 20).await, Told::Block(1));
    assert_eq!(envoy.tenant("a", 1, 20).await, Told::Block(1));
    arrival().await;
    let Told::Block(third) = envoy.tenant("a", 1, 20).await else { panic!("no block") };
    assert!(third > 20, "{third}");
    // As does another tenant.
    assert_eq!(envoy.tenant("b", 0, 20).await, Told::Block(40));
}

#[tokio::test]
async fn an_envoy_that_connects_to_one_instance_and_then_another_leaves_units_to_others() {
    let redis = RedisServer::start();
    let start = async || Service::start_with(&domain(&[HOUR]), |options| options.redis = Some(redis.url())).await;
    let services = [start().await, start().await];
    let mut spent = 0;
    for number in 0..10 {
        spent += units_of_a_short_stream(&services[number % 2]).await;
    }
    print_line(&format!("quotas: 10 short streams of 2 instances had {spent} of 1000"));
    // A half, and a half of the rest.
    assert!((750..760).contains(&spent), "{spent}");
    assert_eq!(services[0].left(entries([("tenant", "a")])).await, 1_000 - spent);
}
