//! Budgets of several Envoys, and under a change.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::proxy::{Calls, Envoy};
use crate::support::{Service, domain, entries};

/// Sends `requests` through all Envoys at once. Returns how many passed.
async fn passed(envoys: &[&Envoy], requests: usize) -> usize {
    let client = reqwest::Client::new();
    let mut running = JoinSet::new();
    for number in 0..requests {
        let (client, address) = (client.clone(), envoys[number % envoys.len()].address.clone());
        running.spawn(async move {
            let request = client.get(format!("http://{address}/")).header("x-tenant", "a");
            request.send().await.unwrap().status().as_u16()
        });
    }
    let statuses = running.join_all().await;
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_envoys_share_one_budget() {
    let yaml = domain(&["{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 100 } }"]);
    let (service, backend) = (Service::start(&yaml).await, Backend::start().await);
    let start = || Envoy::start(&service.address.to_string(), backend.address, Calls::default());
    let (Some(one), Some(other)) = (start(), start()) else { return };
    assert_eq!(passed(&[&one, &other], 300).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_under_load_passes_no_more_than_the_largest_limit() {
    let rules =
        |units: u32| domain(&[&format!("{{ key: tenant, rate_limit: {{ unit: hour, requests_per_unit: {units} }} }}")]);
    let (service, backend) = (Service::start(&rules(50)).await, Backend::start().await);
    let Some(envoy) = Envoy::start(&service.address.to_string(), backend.address, Calls::default()) else { return };
    let changes = async {
        for units in [80, 20, 120] {
            tokio::time::sleep(Duration::from_millis(100)).await;
            service.folder.write("limits.yaml", rules(units));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let load = async {
        let mut all = 0;
        for _ in 0..20 {
            all += passed(&[&envoy], 20).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        all
    };
    let (all, ()) = tokio::join!(load, changes);
    assert!((50..=120).contains(&all), "{all}");
    service
        .until("the last limit applies", async |service| {
            service.left(entries([("tenant", "a")])).await == 120 - all as u32
        })
        .await;
    assert_eq!(all + passed(&[&envoy], 200).await, 120);
}
