//! The quota service: its answers, and what is charged.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::quotas::{Quotas, Told, arrival};
use crate::support::redis_server::RedisServer;
use crate::support::{Descriptor, Service, domain, entries, print_line};

const HOUR: &str = "{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 1000, lease: 500 } }";

async fn left(service: &Service, tenant: &str) -> u32 {
    service.left(entries([("tenant", tenant)])).await
}

fn units(told: Told) -> u64 {
    match told {
        Told::Block(units) => units.into(),
        _ => 0,
    }
}

#[tokio::test]
async fn an_envoy_has_at_most_two_blocks_and_is_charged_what_it_reports() {
    let service = Service::start(&domain(&[HOUR])).await;
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("a", 0, 1).await, Told::Block(8));
    assert_eq!(left(&service, "a").await, 992, "a block counts in full");
    // 10 requests in a moment.
    assert_eq!(envoy.tenant("a", 8, 2).await, Told::Block(100));
    assert_eq!(left(&service, "a").await, 892);
    // The Envoy may not have received the last block yet.
    envoy.tenant_silently("a", 0, 0).await;
    arrival().await;
    let Told::Block(third) = envoy.tenant("a", 60, 0).await else { panic!("no block") };
    assert!((60..=500).contains(&third), "{third}");
    assert_eq!(left(&service, "a").await, 892 - third, "the first block is charged with 8, and the second is open");
    arrival().await;
    let Told::Block(fourth) = envoy.tenant("a", 5, 0).await else { panic!("no block") };
    assert_eq!(left(&service, "a").await, 1_000 - 8 - 65 - third - fourth);
}

#[tokio::test]
async fn an_idle_envoy_holds_one_unit() {
    let service = Service::start(&domain(&[HOUR])).await;
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("a", 0, 1).await, Told::Block(8));
    assert_eq!(envoy.tenant("a", 0, 50).await, Told::Block(496));
    arrival().await;
    assert_eq!(envoy.tenant("a", 0, 0).await, Told::Block(1));
    arrival().await;
    // All others are given back. It stays in force for longer than others, so nothing is said.
    envoy.tenant_silently("a", 0, 0).await;
    assert_eq!(left(&service, "a").await, 999);
    assert!(matches!(envoy.tenant("a", 1, 0).await, Told::Block(8..=10)));
}

#[tokio::test]
async fn both_services_spend_from_one_count() {
    let service = Service::start(&domain(&[HOUR])).await;
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("a", 0, 1).await, Told::Block(8));
    assert!(!service.passes([entries([("tenant", "a")]).hits(993)]).await);
    assert!(service.passes([entries([("tenant", "a")]).hits(992)]).await);
    // Its block stays in force as long as it has units.
    envoy.tenant_silently("a", 5, 0).await;
    assert_eq!(envoy.tenant("a", 3, 1).await, Told::DenyAll);
}

#[tokio::test]
async fn several_envoys_of_two_instances_spend_one_limit_and_never_more() {
    let redis = RedisServer::start();
    let rule = domain(&["{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 200, lease: 100 } }"]);
    let start = async || Service::start_with(&rule, |options| options.redis = Some(redis.url())).await;
    let services = [start().await, start().await];
    let mut envoys = Vec::new();
    for number in 0..4 {
        envoys.push((Quotas::open(services[number % 2].address).await, 0));
    }
    let mut spent = 0;
    let start = Instant::now();
    // Each spends its block at once, and has more requests.
    let mut rounds_after = 0;
    while rounds_after < 2 {
        rounds_after += u32::from(spent >= 196);
        assert!(start.elapsed() < Duration::from_secs(60), "{spent} of 200 are spent");
        for (envoy, units) in &mut envoys {
            envoy.send("test", &[(&[("tenant", "a")], *units, 20)]);
            *units = 0;
        }
        arrival().await;
        for (envoy, block) in &mut envoys {
            *block = envoy.newest("tenant=a").await.map_or(0, units);
            spent += *block;
        }
    }
    print_line(&format!("quotas: 4 streams of 2 instances spent {spent} of 200"));
    assert!((196..=200).contains(&spent), "{spent}");
    for service in &services {
        assert!(u64::from(left(service, "a").await) <= 200 - spent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_window_contains_more_than_the_limit() {
    const WINDOW: Duration = Duration::from_secs(3);
    let redis = RedisServer::start();
    let rule = domain(&["{ key: tenant, rate_limit: { window: 3s, requests_per_unit: 60, lease: 30 } }"]);
    let start = async || Service::start_with(&rule, |options| options.redis = Some(redis.url())).await;
    let services = [start().await, start().await];
    let mut running = JoinSet::new();
    for number in 0..4 {
        let mut envoy = Quotas::open(services[number % 2].address).await;
        running.spawn(async move {
            let (mut spent, mut left, mut reported) = (Vec::new(), 0, 0);
            for round in 0..12 {
                envoy.send("test", &[(&[("tenant", "a")], reported, 5)]);
                reported = 0;
                for step in 0..22 {
                    left = envoy.newest("tenant=a").await.map_or(left, units);
                    // At once, one by one, or all when the block is about to be replaced.
                    let part = match (number + round) % 3 {
                        0 => left,
                        1 => left.min(1),
                        _ if step > 18 => left,
                        _ => 0,
                    };
                    (0..part).for_each(|_| spent.push(Instant::now()));
                    (left, reported) = (left - part, reported + part);
                }
            }
            spent
        });
    }
    let mut spent = running.join_all().await.concat();
    spent.sort();
    let window = |first: usize| spent[first..].iter().take_while(|at| **at - spent[first] < WINDOW).count();
    let most = (0..spent.len()).map(window).max().unwrap_or_default();
    print_line(&format!("quotas: {} requests of 4 Envoys, at most {most} of 60 in a window of 3 s", spent.len()));
    assert!((30..=60).contains(&most) && spent.len() > 100);
}

#[tokio::test]
async fn blocks_of_a_stream_that_ends_are_charged_when_its_envoy_spends_them_no_longer() {
    let rule = "{ key: tenant, rate_limit: { window: 1s, requests_per_unit: 100, lease: 50 } }";
    let service = Service::start(&domain(&[rule])).await;
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("a", 0, 1).await, Told::Block(8));
    let start = Instant::now();
    drop(envoy);
    // An Envoy keeps an assignment for 12 s, whatever the window. So this test has to wait.
    while start.elapsed() < Duration::from_secs(14) {
        assert_eq!(left(&service, "a").await, 92);
        sleep(Duration::from_millis(200)).await;
    }
    service.until("the block is charged, and its window has passed", async |s| left(s, "a").await == 100).await;
    print_line(&format!("quotas: charged after {:?}", start.elapsed()));
    assert!(start.elapsed() > Duration::from_secs(16));
}

#[tokio::test]
async fn a_trial_counts_and_an_unlimited_rule_does_not() {
    let service = Service::start(&domain(&[
        "{ key: tenant, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 100, lease: 50 } }",
        "{ key: free, rate_limit: { unlimited: true } }",
        "{ key: never, rate_limit: { unit: hour, requests_per_unit: 0 } }",
    ]))
    .await;
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("a", 0, 1).await, Told::AllowAll);
    assert_eq!(envoy.tenant("a", 30, 0).await, Told::AllowAll);
    service.until("30 requests are counted", async |service| left(service, "a").await == 70).await;
    assert_eq!(envoy.tenant("a", 90, 0).await, Told::AllowAll);
    service.until("all requests are counted", async |service| left(service, "a").await == 0).await;
    envoy.send("test", &[(&[("free", "a")], 5, 0), (&[("never", "a")], 0, 1)]);
    let told = envoy.answer().await.unwrap();
    assert_eq!((told["free=a"], told["never=a"]), (Told::AllowAll, Told::DenyAll));
}

#[tokio::test]
async fn the_entries_of_a_bucket_match_in_any_order() {
    let service = Service::start(
        "
domain: test
descriptors:
  - key: path
    descriptors: [{ key: other, rate_limit: { unit: hour, requests_per_unit: 9, lease: 9 } }]
  - key: tenant
    descriptors:
      - key: path
        value: /a
      - key: method
        descriptors: [{ key: path, rate_limit: { unit: hour, requests_per_unit: 300, lease: 100 } }]
",
    )
    .await;
    let mut envoy = Quotas::open(service.address).await;
    envoy.send("test", &[(&[("method", "get"), ("path", "/a"), ("tenant", "a")], 0, 1)]);
    assert_eq!(envoy.answer().await.unwrap()["method=get,path=/a,tenant=a"], Told::Block(8));
    let descriptor = entries([("tenant", "a"), ("method", "get"), ("path", "/a")]);
    assert_eq!(service.left(descriptor).await, 292);
    envoy.send("test", &[(&[("method", "get"), ("tenant", "a")], 0, 1)]);
    assert_eq!(envoy.answer().await.unwrap()["method=get,tenant=a"], Told::DenyAll, "no rule ends there");
}
