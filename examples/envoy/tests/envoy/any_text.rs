//! Fields of requests that are no UTF-8, which Envoy forwards, and sends to the service.

use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::proxy::{Calls, Envoy};
use crate::support::{Service, domain};

/// The status of a request of a tenant whose name may have any bytes.
async fn status(envoy: &Envoy, client: &reqwest::Client, tenant: &[u8]) -> u16 {
    let request = client.get(format!("http://{}/", envoy.address));
    request.header("x-tenant", http::HeaderValue::from_bytes(tenant).unwrap()).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_no_utf_8_is_limited_although_envoy_passes_what_has_no_answer() {
    let yaml = domain(&["{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 2 } }"]);
    let (service, backend) = (Service::start(&yaml).await, Backend::start().await);
    let calls = Calls { denies: false, ..Calls::default() };
    let Some(envoy) = Envoy::start(&service.address.to_string(), backend.address, calls) else { return };
    let client = reqwest::Client::new();
    for tenant in [&b"a\xff"[..], b"\xc3", b"plain"] {
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(status(&envoy, &client, tenant).await);
        }
        assert_eq!(statuses, [200, 200, 429, 429], "{tenant:?}");
    }
}

/// Envoy reports every five seconds, so this test has to wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_no_utf_8_takes_no_quota_from_others() {
    let yaml = domain(&["{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 1000, lease: 500 } }"]);
    let (service, backend) = (Service::start(&yaml).await, Backend::start().await);
    let Some(envoy) = Envoy::start_with_quotas(&service.address.to_string(), backend.address) else { return };
    let client = reqwest::Client::new();
    let (start, mut passed) = (Instant::now(), 0);
    // More than a first block.
    while passed < 30 {
        assert!(start.elapsed() < Duration::from_secs(60), "{passed} requests have passed");
        assert_eq!(status(&envoy, &client, b"a\xff").await, 429);
        passed += u32::from(status(&envoy, &client, b"plain").await == 200);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
