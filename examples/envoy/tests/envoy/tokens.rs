//! Token budgets: each request holds its estimate, and is charged what its response says.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::proxy::{Calls, Envoy, TOKENS};
use crate::support::{Descriptor, Service, domain, entries};

fn budget(units: u32, ttl: &str) -> String {
    domain(&[&format!("{{ key: tenant, rate_limit: {{ unit: hour, requests_per_unit: {units}, hold_ttl: {ttl} }} }}")])
}

fn calls() -> Calls<'static> {
    Calls { rate_limits: TOKENS, ..Calls::default() }
}

/// Waits until so many units are left.
async fn left(service: &Service, units: u32) {
    let start = Instant::now();
    loop {
        let found = service.left(entries([("tenant", "a")])).await;
        if found == units {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{found} are left, not {units}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_charged_what_its_response_says() {
    let (service, backend) = (Service::start(&budget(100, "1m")).await, Backend::start().await);
    let Some(envoy) = Envoy::start(&service.address.to_string(), backend.address, calls()) else { return };
    let client = reqwest::Client::new();
    let fields = [("x-tenant", "a"), ("x-estimate", "60"), ("x-spends", "25"), ("x-takes", "300")];
    let (response, ()) = tokio::join!(envoy.get(&client, &fields), left(&service, 40));
    assert_eq!(response.status(), 200);
    left(&service, 75).await;
    // More than the estimate is charged too.
    let fields = [("x-tenant", "a"), ("x-estimate", "5"), ("x-spends", "70")];
    assert_eq!(envoy.get(&client, &fields).await.status(), 200);
    left(&service, 5).await;
    // A refused request settles nothing.
    let fields = [("x-tenant", "a"), ("x-estimate", "6"), ("x-spends", "1")];
    assert_eq!(envoy.get(&client, &fields).await.status(), 429);
    left(&service, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_repeats_a_request_id_ends_no_hold_of_another_tenant() {
    let (service, backend) = (Service::start(&budget(100, "1m")).await, Backend::start().await);
    let Some(envoy) = Envoy::start(&service.address.to_string(), backend.address, calls()) else { return };
    let client = reqwest::Client::new();
    let id = ("x-request-id", "11111111-1111-4111-8111-111111111111");
    let slow = [("x-tenant", "a"), id, ("x-estimate", "60"), ("x-spends", "50"), ("x-takes", "600")];
    let thief = [("x-tenant", "b"), id, ("x-estimate", "1"), ("x-spends", "0")];
    let other = async {
        left(&service, 40).await;
        for _ in 0..3 {
            assert_eq!(envoy.get(&client, &thief).await.status(), 200);
        }
        assert_eq!(service.left(entries([("tenant", "a")])).await, 40);
    };
    let (response, ()) = tokio::join!(envoy.get(&client, &slow), other);
    assert_eq!(response.status(), 200);
    left(&service, 50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_is_charged_its_estimate_at_the_end_of_the_hold() {
    let (service, backend) = (Service::start(&budget(100, "1s")).await, Backend::start().await);
    let Some(envoy) = Envoy::start(&service.address.to_string(), backend.address, calls()) else { return };
    let client = reqwest::Client::builder().timeout(Duration::from_millis(200)).build().unwrap();
    let request = client.get(format!("http://{}/", envoy.address));
    let request = request.header("x-tenant", "a").header("x-estimate", "60").header("x-takes", "60000");
    assert!(request.send().await.is_err());
    left(&service, 40).await;
    tokio::time::sleep(Duration::from_millis(1_800)).await;
    left(&service, 40).await;
    // The hold has ended, so nothing is left of it to settle.
    let settle = entries([("tenant", "a"), ("settle", "unknown")]).hits(0);
    assert!(service.passes([settle]).await);
    left(&service, 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn model_calls_at_once_spend_no_more_than_the_budget() {
    let (service, backend) = (Service::start(&budget(10_000, "1m")).await, Backend::start().await);
    let Some(envoy) = Envoy::start(&service.address.to_string(), backend.address, calls()) else { return };
    let client = reqwest::Client::new();
    let mut running = JoinSet::new();
    for caller in 0..64_u64 {
        let (client, address) = (client.clone(), envoy.address.clone());
        running.spawn(async move {
            let mut passed = 0_u64;
            for number in 0..10_u64 {
                // From 100 to 400 tokens, of which a half to all are spent.
                let estimate = 100 + (caller * 37 + number * 61) % 300;
                let spends = estimate / 2 + (caller * 13 + number * 7) % (estimate / 2 + 1);
                let request = client.get(format!("http://{address}/")).header("x-tenant", "a");
                let request = request.header("x-estimate", estimate).header("x-spends", spends).header("x-takes", 20);
                let status = request.send().await.unwrap().status().as_u16();
                assert!([200, 429].contains(&status), "{status}");
                passed += u64::from(status == 200);
            }
            passed
        });
    }
    let passed: u64 = running.join_all().await.into_iter().sum();
    let spent = u32::try_from(backend.spent.load(Ordering::Relaxed)).unwrap();
    crate::support::print_line(&format!("model calls: {passed} of 640 passed, and spent {spent} of 10000 tokens"));
    assert!(spent <= 10_000 && spent > 9_000, "{spent}");
    left(&service, 10_000 - spent).await;
}
