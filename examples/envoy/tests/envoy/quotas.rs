//! The quota service: each Envoy spends blocks of units. Envoy reports every five seconds, so these tests have to wait.

use std::time::{Duration, Instant};

use tokio::{join, time::sleep};

use crate::support::program::{Program, configuration};
use crate::support::{Service, domain, entries, print_line, request};
use crate::support::{ports::free_port, redis_server::RedisServer};
use crate::{backend::Backend, proxy::Envoy};

/// Sends requests of a tenant to an Envoy for this time. Counts those that pass.
async fn load(envoy: &Envoy, tenant: &str, time: Duration) -> u32 {
    let client = reqwest::Client::new();
    let (start, mut passed) = (Instant::now(), 0);
    while start.elapsed() < time {
        match envoy.status(&client, tenant).await {
            200 => passed += 1,
            429 => sleep(Duration::from_millis(10)).await,
            status => panic!("{status}"),
        }
        sleep(Duration::from_millis(2)).await;
    }
    passed
}

const TWO_HUNDRED: &str = "{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 200, lease: 100 } }";

#[tokio::test(flavor = "multi_thread")]
async fn two_envoys_spend_one_budget_to_its_end_and_never_more() {
    let (service, backend) = (Service::start(&domain(&[TWO_HUNDRED])).await, Backend::start().await);
    let start = || Envoy::start_with_quotas(&service.address.to_string(), backend.address);
    let (Some(one), Some(other)) = (start(), start()) else { return };
    let (start, mut by_one, mut by_other) = (Instant::now(), 0, 0);
    let mut rounds_after = 0;
    while rounds_after < 2 {
        rounds_after += u32::from(by_one + by_other >= 196);
        assert!(start.elapsed() < Duration::from_secs(90), "{by_one} and {by_other} of 200 passed");
        let time = Duration::from_secs(4);
        let passed = join!(load(&one, "a", time), load(&other, "a", time));
        (by_one, by_other) = (by_one + passed.0, by_other + passed.1);
    }
    print_line(&format!("quotas: {by_one} and {by_other} of 200 passed"));
    assert!(by_one > 8 && by_other > 8, "each has had more than its first block");
    assert!(by_one + by_other <= 200);
    let left = service.left(entries([("tenant", "a")])).await;
    assert!(left <= 200 - by_one - by_other, "{left}");
    drop((one, other));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_envoy_gives_its_blocks_back_and_forgets_the_bucket() {
    let (service, backend) = (Service::start(&domain(&[TWO_HUNDRED])).await, Backend::start().await);
    let Some(envoy) = Envoy::start_with_quotas(&service.address.to_string(), backend.address) else { return };
    // More than the first block, and less than the second.
    let mut passed = 0;
    while passed < 12 {
        passed += load(&envoy, "a", Duration::from_millis(10)).await;
    }
    let left = async |service: &Service| service.left(entries([("tenant", "a")])).await;
    print_line(&format!("quotas: {passed} passed, {} left while the Envoy holds blocks", left(&service).await));
    assert!(left(&service).await < 150);
    // All but one unit.
    let idle = async |service: &Service| left(service).await >= 199 - passed;
    service.until("the blocks are given back", idle).await;
    assert_eq!(left(&service).await, 199 - passed);
    // At the last of some reports after 30 s.
    sleep(Duration::from_secs(20)).await;
    service.until("the Envoy has forgotten the bucket", async |service| left(service).await == 200 - passed).await;
    let client = reqwest::Client::new();
    while envoy.status(&client, "a").await != 200 {
        sleep(Duration::from_millis(50)).await;
    }
    assert!(left(&service).await < 200 - passed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_frozen_killed_and_started_again_gives_only_what_is_left() {
    let (redis, backend) = (RedisServer::start(), Backend::start().await);
    let (_folder, path) = configuration(&domain(&[TWO_HUNDRED]));
    let address = format!("127.0.0.1:{}", free_port());
    let url = redis.url();
    let start = || Program::start_at(&address, &["--config", &path, "--redis", &url, "--deadline", "5000ms"]);
    let program = start();
    let (Some(one), Some(other)) =
        (Envoy::start_with_quotas(&address, backend.address), Envoy::start_with_quotas(&address, backend.address))
    else {
        return;
    };
    let time = Duration::from_secs(55);
    let restarted = async {
        sleep(Duration::from_secs(6)).await;
        // For longer than a report takes, and a block may take to be sent.
        program.signal("-STOP");
        sleep(Duration::from_secs(7)).await;
        program.signal("-CONT");
        sleep(Duration::from_secs(4)).await;
        program.signal("-KILL");
        drop(program);
        sleep(Duration::from_secs(3)).await;
        start()
    };
    let (by_one, by_other, _program) = join!(load(&one, "a", time), load(&other, "a", time), restarted);
    print_line(&format!("quotas: {by_one} and {by_other} of 200 passed, over a frozen and a killed service"));
    // Blocks of the killed service are charged in full.
    assert!((20..=200).contains(&(by_one + by_other)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_failure_policy_decides_while_redis_is_away() {
    let backend = Backend::start().await;
    let mut redis = RedisServer::start();
    let rule = |policy: &str| {
        format!(
            "{{ key: tenant, value: {policy}, rate_limit: \
             {{ unit: hour, requests_per_unit: 100000, lease: 100, on_store_failure: {policy} }} }}"
        )
    };
    let yaml = domain(&["open", "closed", "local"].map(rule).each_ref().map(String::as_str));
    let service = Service::start_with(&yaml, |options| {
        options.redis = Some(redis.url());
        options.instances = Some(Some(2));
        options.deadline = Duration::from_secs(2);
    })
    .await;
    let Some(envoy) = Envoy::start_with_quotas(&service.address.to_string(), backend.address) else { return };
    let all = async |time| join!(load(&envoy, "open", time), load(&envoy, "closed", time), load(&envoy, "local", time));
    let (open, closed, local) = all(Duration::from_secs(6)).await;
    assert!(open > 8 && closed > 8 && local > 8);
    redis.kill();
    // The blocks that the Envoy has are spent first.
    sleep(Duration::from_secs(13)).await;
    let away = all(Duration::from_secs(6)).await;
    print_line(&format!("quotas: {open}, {closed} and {local} passed, {away:?} without Redis: open, closed, local"));
    assert!(away.0 > 20 && away.1 == 0 && (1..=300).contains(&away.2), "{away:?}");
    redis.restart();
    let limited = async |service: &Service| {
        load(&envoy, "closed", Duration::from_secs(1)).await > 0
            && service.try_call(request("test", [entries([("tenant", "closed")])])).await.is_ok()
    };
    service.until("Redis judges again", limited).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_without_a_rule_is_refused_until_it_has_one() {
    let (service, backend) = (Service::start(&domain(&["{ key: other }"])).await, Backend::start().await);
    let Some(envoy) = Envoy::start_with_quotas(&service.address.to_string(), backend.address) else { return };
    assert_eq!(load(&envoy, "a", Duration::from_secs(1)).await, 0);
    service.folder.write("limits.yaml", domain(&[TWO_HUNDRED]));
    let passes = async |_: &Service| load(&envoy, "a", Duration::from_millis(100)).await > 0;
    service.until("the bucket has units", passes).await;
}
