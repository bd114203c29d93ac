//! Streams of the quota service that ask for too much, stand still or do not fit the configuration, and Redis away.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tonic::{Code, transport::Endpoint};

use crate::support::program::{Program, configuration};
use crate::support::quotas::{Quotas, Told, Usage, arrival};
use crate::support::redis_server::RedisServer;
use crate::support::{Service, domain, entries};

const HOUR: &str = "{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 1000, lease: 500 } }";

#[tokio::test]
async fn a_bucket_with_too_many_values_takes_no_other_one_out_of_service() {
    let service = Service::start(&domain(&[HOUR])).await;
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("honest", 0, 1).await, Told::Block(8));
    let values: Vec<_> = (0..2_000).map(|number| format!("v{number}")).collect();
    let buckets: Vec<_> = values.iter().map(|value| [("tenant", value.as_str())]).collect();
    let usages: Vec<Usage<'_>> = buckets.iter().map(|bucket| (&bucket[..], 0, 1)).collect();
    envoy.send("test", &usages);
    let (mut blocks, mut denied) = (0, 0);
    while blocks + denied < 2_000 {
        for told in envoy.answer().await.unwrap().into_values() {
            match told {
                Told::Block(8) => blocks += 1,
                Told::DenyAll => denied += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((blocks, denied), (1_023, 977));
    arrival().await;
    // A report of an hour of requests, as far as the stream is concerned.
    assert!(matches!(envoy.tenant("honest", 8, 9).await, Told::Block(9..)));
    // The Envoy forgets a bucket without a place that has no requests.
    assert_eq!(envoy.tenant("v1999", 0, 0).await, Told::Abandon);
    let mut other = Quotas::open(service.address).await;
    assert_eq!(other.tenant("v1999", 0, 1).await, Told::Block(8));
}

#[tokio::test]
async fn long_values_of_strangers_end_no_stream() {
    let (_folder, path) = configuration(&domain(&[HOUR]));
    let program = Program::start(&["--config", &path]);
    let mut envoy = Quotas::open(&program.address).await;
    // Each as long as Envoy lets a field of a request be.
    let values: Vec<_> = (0..100).map(|number| format!("{number}{}", "x".repeat(60_000))).collect();
    let buckets: Vec<_> = values.iter().map(|value| [("tenant", value.as_str())]).collect();
    let of_strangers = |denied| buckets.iter().map(move |bucket| (&bucket[..], 0, denied));
    let usages: Vec<Usage<'_>> = of_strangers(1).chain([(&[("tenant", "a")][..], 0, 1)]).collect();
    envoy.send("test", &usages);
    let told = envoy.answer().await.unwrap();
    assert_eq!((told.len(), told["tenant=a"]), (101, Told::Block(8)));
    // An Envoy forgets them with the next answer.
    envoy.send("test", &of_strangers(0).collect::<Vec<_>>());
    assert!(envoy.answer().await.unwrap().values().all(|told| *told == Told::Abandon));
}

/// It waits for the service, which gives a stream ten seconds.
#[tokio::test]
async fn a_stream_without_a_report_ends_and_leaves_its_place_to_others() {
    let service = Service::start(&domain(&[HOUR])).await;
    let start = Instant::now();
    let status = Quotas::open(service.address).await.end().await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(start.elapsed() >= Duration::from_secs(10));
}

#[tokio::test]
async fn buckets_that_do_not_fit_the_configuration_are_refused_and_said_once() {
    let plain = "{ key: plain, rate_limit: { unit: hour, requests_per_unit: 10 } }";
    let (_folder, path) = configuration(&domain(&[HOUR, plain]));
    let program = Program::start(&["--config", &path]);
    let mut envoy = Quotas::open(&program.address).await;
    let nine: Vec<_> = ["1", "2", "3", "4", "5", "6", "7", "8", "9"].map(|key| (key, "secret")).to_vec();
    for round in 0..30 {
        for number in 0..100 {
            let value = format!("secret{round}x{number}");
            let usages: [Usage<'_>; 4] = [
                (&[("wrong", &value)], 0, 1),
                (&[("plain", &value)], 0, 1),
                (&nine, 0, 1),
                (&[("tenant", "a"), ("tenant2", &value)], 0, 1),
            ];
            envoy.send("test", &usages);
            let told = envoy.answer().await.unwrap();
            assert!(told.len() == 4 && told.values().all(|told| *told == Told::DenyAll), "{told:?}");
        }
    }
    // They take no place, so the Envoy has all of them for others.
    let values: Vec<_> = (0..1_024).map(|number| format!("v{number}")).collect();
    let buckets: Vec<_> = values.iter().map(|value| [("tenant", value.as_str())]).collect();
    let usages: Vec<Usage<'_>> = buckets.iter().map(|bucket| (&bucket[..], 0, 1)).collect();
    envoy.send("test", &usages);
    assert!(envoy.answer().await.unwrap().values().all(|told| *told == Told::Block(8)));
    let stderr = program.stderr_with("\"plain\" are refused");
    for line in
        ["\"wrong\" are refused: no rule", "\"plain\" are refused: their rule has no lease", "at most 8 entries"]
    {
        assert_eq!(stderr.matches(line).count(), 1, "{line}\n{stderr}");
    }
    assert!(!stderr.contains("secret"), "{stderr}");
}

#[tokio::test]
async fn a_stream_that_cannot_be_served_ends_with_what_to_do() {
    let service = Service::start(&domain(&[HOUR])).await;
    let tenant = |value| [("tenant", value)];
    for (domains, code, advice) in [
        (&[""][..], Code::InvalidArgument, "no domain"),
        (&["test", "other"], Code::InvalidArgument, "open another stream"),
        (&["unknown"], Code::NotFound, "no configuration has this domain"),
    ] {
        let mut envoy = Quotas::open(service.address).await;
        for domain in domains {
            envoy.send(domain, &[(&tenant("a"), 0, 1)]);
        }
        let status = envoy.end().await;
        assert!(status.code() == code && status.message().contains(advice), "{domains:?} {status}");
    }
    let mut envoy = Quotas::open(service.address).await;
    let long = "x".repeat(17 << 20);
    envoy.send("test", &[(&tenant(&long), 0, 1)]);
    let status = envoy.end().await;
    assert!(status.code() == Code::OutOfRange && status.message().contains("too long"), "{status}");
    // A value that is too long for the map.
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant(&"y".repeat(5_000), 0, 1).await, Told::DenyAll);
    // A report without a domain goes on with that of the first one, and one without entries names no bucket.
    envoy.send("", &[(&[], 0, 1), (&tenant("b"), 0, 1)]);
    assert_eq!(envoy.answer().await.unwrap()["tenant=b"], Told::Block(8));
}

#[tokio::test]
async fn a_stream_that_is_not_read_ends_and_its_blocks_stay_charged() {
    let service = Service::start(&domain(&[HOUR])).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", service.address)).unwrap();
    let mut envoy = Quotas::open_on(endpoint.initial_stream_window_size(16)).await;
    let values: Vec<_> = (0..20).map(|number| format!("v{number}")).collect();
    for value in &values {
        envoy.send("test", &[(&[("tenant", value)], 0, 1)]);
    }
    // The service waits 10 s for the Envoy to read.
    sleep(Duration::from_secs(11)).await;
    let served = values.iter().map(|value| service.left(entries([("tenant", value)])));
    let mut held = 0;
    for left in served {
        held += u32::from(left.await == 992);
    }
    assert!((1..=5).contains(&held), "{held}");
    let status = envoy.end().await;
    assert!(status.code() == Code::DeadlineExceeded && status.message().contains("not read"), "{status}");
}

#[tokio::test]
async fn a_block_that_would_be_sent_too_late_is_not_sent() {
    let redis = RedisServer::start();
    let service = Service::start_with(&domain(&[HOUR]), |options| options.redis = Some(redis.url())).await;
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("a", 0, 0).await, Told::Block(1));
    redis.signal("STOP");
    envoy.send("test", &[(&[("tenant", "b")], 0, 0)]);
    // Redis answers within the deadline, and after a half of the margin of 4 s.
    sleep(Duration::from_millis(2_500)).await;
    redis.signal("CONT");
    assert_eq!(envoy.answer().await.unwrap()["tenant=b"], Told::DenyAll);
    let is_free = async |service: &Service| service.left(entries([("tenant", "b")])).await == 1_000;
    service.until("the block that was not sent is given back", is_free).await;
}

#[tokio::test]
async fn an_envoy_that_reads_late_gets_another_block_without_a_report() {
    let service = Service::start(&domain(&[HOUR])).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", service.address)).unwrap();
    let mut envoy = Quotas::open_on(endpoint.initial_stream_window_size(16)).await;
    let tenants: Vec<_> = (0..20).map(|number| format!("v{number}")).collect();
    for tenant in &tenants {
        envoy.send("test", &[(&[("tenant", tenant)], 0, 1)]);
    }
    // For longer than a half of the margin of 4 s.
    sleep(Duration::from_millis(2_500)).await;
    let (mut last, mut late) = (BTreeMap::new(), 0);
    while last.len() < tenants.len() || last.values().any(|told| *told != Told::Block(8)) {
        let answer = envoy.answer().await.unwrap();
        late += answer.values().filter(|told| **told == Told::DenyAll).count();
        last.extend(answer);
    }
    assert!(late > 0, "no block was late");
    for tenant in &tenants {
        assert_eq!(service.left(entries([("tenant", tenant)])).await, 992, "one block is held");
    }
}

#[tokio::test]
async fn a_report_that_has_waited_for_the_service_is_no_later_than_its_last_answer() {
    let redis = RedisServer::start();
    let service = Service::start_with(&domain(&[HOUR]), |options| options.redis = Some(redis.url())).await;
    let mut envoy = Quotas::open(service.address).await;
    assert_eq!(envoy.tenant("a", 0, 1).await, Told::Block(8));
    let Told::Block(second) = envoy.tenant("a", 0, 5).await else { panic!("no block") };
    redis.signal("STOP");
    envoy.send("test", &[(&[("tenant", "b")], 0, 1)]);
    // Before the Envoy has received the second block, so it may still spend the first one.
    envoy.send("test", &[(&[("tenant", "a")], 0, 0)]);
    sleep(Duration::from_millis(1_500)).await;
    redis.signal("CONT");
    assert_eq!(envoy.answer().await.unwrap()["tenant=b"], Told::Block(8));
    assert_eq!(envoy.newest("tenant=a").await, None);
    assert_eq!(service.left(entries([("tenant", "a")])).await, 1_000 - 8 - second);
}

#[tokio::test]
async fn the_failure_policy_decides_without_redis() {
    let rule = |policy: &str| {
        format!(
            "{{ key: {policy}, rate_limit: {{ unit: hour, requests_per_unit: 100, lease: 50, \
             on_store_failure: {policy} }} }}"
        )
    };
    let yaml = domain(&["open", "closed", "local"].map(rule).each_ref().map(String::as_str));
    let usages: [Usage<'_>; 3] = [(&[("open", "a")], 0, 9), (&[("closed", "a")], 0, 9), (&[("local", "a")], 0, 9)];
    let mut redis = RedisServer::start();
    let service = Service::start_with(&yaml, |options| {
        options.redis = Some(redis.url());
        options.instances = Some(Some(2));
        options.deadline = Duration::from_secs(2);
    })
    .await;
    redis.kill();
    let mut envoy = Quotas::open(service.address).await;
    envoy.send("test", &usages);
    let told = envoy.answer().await.unwrap();
    assert_eq!((told["open=a"], told["closed=a"]), (Told::AllowAll, Told::DenyAll));
    // At most a half of this instance's share, which is a half of the limit.
    assert!(matches!(told["local=a"], Told::Block(1..=25)), "{told:?}");
    redis.restart();
    let start = Instant::now();
    // A report, or a try without one.
    while envoy.newest("closed=a").await.is_none_or(|told| told == Told::DenyAll) {
        assert!(start.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(500)).await;
        envoy.send("test", &[(&[("closed", "a")], 0, 9)]);
    }
    arrival().await;
    // What has passed while everything did is charged to no block.
    envoy.send("test", &[(&[("open", "a")], 5_000, 0)]);
    while !matches!(envoy.newest("open=a").await, Some(Told::Block(_))) {
        assert!(start.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(500)).await;
        envoy.send("test", &[(&[("open", "a")], 0, 9)]);
    }

    let service = Service::start(&yaml).await;
    let mut envoy = Quotas::open(service.address).await;
    envoy.send("test", &usages);
    assert!(envoy.answer().await.unwrap().values().all(|told| *told == Told::Block(18)), "memory never fails");
}
